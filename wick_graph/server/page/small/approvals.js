/*1767a6f28890ed73*/
import{html as i,signal as v,useEffect as F,useRef as T}from"./vendor/preact.js";import{ask as x,begin as W,who as _}from"./api.js";import{listen as L}from"./stream.js";import{counted as M,Value as A}from"./values.js";export const groups=v(null);const O=v(""),m=v({}),R="wick-drafts",$=v(JSON.parse(sessionStorage.getItem(R)??"{}")),k=e=>Array.isArray(e.value?.agents)?e.value.agents.map(String):[],I=e=>e.kind==="approval"&&typeof e.value?.tool=="string"&&Object(e.value.args)===e.value.args,u=e=>`${e.id} ${e.value?.hash??""}`;function p(e,s){const{[u(e)]:t,...a}=$.value;$.value=s?{...a,[u(e)]:{...t,...s}}:a,sessionStorage.setItem(R,JSON.stringify($.value))}export async function look(){try{const e=await x("/threads",{status:"waiting",limit:100}),s=await Promise.all(e.map(async a=>({thread:a,questions:await x(`/threads/${encodeURIComponent(a.thread_id)}/approvals`).catch(()=>[])}))),t=s.flatMap(({thread:a,questions:n})=>n.map(r=>`${a.thread_id} ${k(r).at(-1)} ${r.value?.tool}`));groups.value=s.filter(({thread:a,questions:n})=>{const r=n[0]?.value?.tool;return n.length&&!(a.parent&&t.includes(`${a.parent} ${a.agent} ${r}`))}),O.value=""}catch(e){O.value=e.message}}let N=0,J=!1;export function watch(){J||(J=!0,look(),L(()=>{clearTimeout(N),N=setTimeout(look,300)}))}const C=e=>Array.isArray(e?.enum)?"enum":["string","boolean"].includes(e?.type)?e.type:"json",Q=(e,s)=>C(s)==="string"&&typeof e=="string"?e:JSON.stringify(e);function U(e,s){const t={...e.value?.args},a=$.value[u(e)]?.args??{};let n="";for(const[l,o]of Object.entries(a)){const f=C(s?.properties?.[l])==="string"&&(typeof t[l]=="string"||!(l in t));try{o===""&&!f?delete t[l]:t[l]=f?o:JSON.parse(o)}catch{n=`${l}: write JSON, such as 5, "text" or [1, 2]`}}const r=[...new Set([...Object.keys(t),...Object.keys(e.value?.args??{})])].filter(l=>JSON.stringify(t[l])!==JSON.stringify(e.value?.args?.[l]));return{args:t,changed:r,error:n}}function B({question:e,name:s,schema:t,isDone:a}){const n=`${e.id} ${s}`.replace(/\s/g,"-"),r=e.value?.args?.[s],l=$.value[u(e)]?.args?.[s]??(r===void 0?"":Q(r,t)),o=c=>p(e,{args:{...$.value[u(e)]?.args,[s]:c}}),f=c=>o(c.target.value),g=r!==void 0&&t?.type==="string"&&typeof r!="string"?"json":C(t),j=g==="boolean"?[!0,!1]:t?.enum;return i`<label for=${n}>${s}</label>
    ${j&&g!=="string"&&g!=="json"?i`<select id=${n} disabled=${a} onChange=${f}>
          ${[...new Set([l,...j.map(c=>JSON.stringify(c))])].map(c=>i`<option value=${c} selected=${c===l}>${c}</option>`)}
        </select>`:i`<textarea id=${n} disabled=${a} rows=${Math.min(8,l.split(`
`).length)} spellcheck="false"
          value=${l} onInput=${f} title=${typeof t?.description=="string"?t.description:s} />`}`}const h=v({});function P(e){!e||e in h.peek()||(h.value={...h.peek(),[e]:{}},x(`/agents/${encodeURIComponent(e)}/flow`).then(s=>h.value={...h.peek(),[e]:s.schemas},()=>null))}function V({question:e,agent:s,title:t,decide:a}){const n=k(e).at(-1)??s;F(()=>P(n),[n]);const r=$.value[u(e)]??{},l=h.value[n]?.[e.value?.tool],{changed:o,args:f,error:g}=U(e,l),j=[...new Set([...Object.keys(e.value?.args??{}),...Object.keys(l?.properties??{})])],c=r.is!==void 0,b=_.value?.scopes.includes("approve"),S=d=>(p(e,{is:d}),a(e)),K=d=>{if(!(d.target.matches("textarea, select, input")||d.ctrlKey||d.metaKey||d.altKey||c||!b)){if(d.key==="a"&&!g)S(o.length?"edit":"approve");else if(d.key==="r")p(e,{opens:"reject"});else return;d.preventDefault()}},D={reject:"Reason, which the model reads",respond:"Result, which the model reads"},y=r.opens;return i`<article class=${`question${c?" decided":""}`} aria-label=${t} onKeyDown=${K}>
    <p class="line"><b>${e.value?.tool}</b> <span class="faint">${e.value?.why}${k(e).length>0&&` · asked by ${k(e).join(" › ")}`}</span></p>
    <div class="fields">
      ${j.map(d=>i`<${B} key=${d} question=${e} name=${d} schema=${l?.properties?.[d]} isDone=${c||!b} />`)}
    </div>
    ${o.length>0&&i`<ul class="changes" aria-label="What you changed">
      ${o.map(d=>i`<li class="change">
        <code>${d}</code>
        <div class="before"><span class="sr">before: </span><${A} thread=${e.thread_id} value=${e.value?.args?.[d]??null} /></div>
        <div class="after"><span class="sr">after: </span><${A} thread=${e.thread_id} value=${f[d]??null} /></div>
      </li>`)}
    </ul>`}
    ${g&&i`<p class="bad" role="alert">${g}</p>`}
    ${y&&!c&&i`<div class="fields"><label for=${`m-${e.id}`}>${D[y]}</label>
      <textarea id=${`m-${e.id}`} rows="2" value=${r.message??""} onInput=${d=>p(e,{message:d.target.value})} /></div>`}
    <p class="line">
      ${c?i`<span class="good">✓ ${{approve:"Approved",edit:"Approved with changes",reject:"Rejected",respond:"Answered"}[r.is]}</span>
            <button data-undo onClick=${()=>p(e,{is:void 0,opens:void 0})}>Undo</button>`:y?i`<button class="main" onClick=${()=>S(y)}>${y==="reject"?"Reject":"Answer"}</button>
              <button onClick=${()=>p(e,{opens:void 0})}>Back</button>`:i`<button class="main" data-first disabled=${!b||g!==""} onClick=${()=>S(o.length?"edit":"approve")}>
                ${o.length?"Approve with changes":"Approve"}</button>
              <button disabled=${!b} onClick=${()=>p(e,{opens:"reject"})}>Reject …</button>
              <button disabled=${!b} onClick=${()=>p(e,{opens:"respond"})}>Answer for it …</button>
              ${o.length>0&&i`<button onClick=${()=>p(e,{args:{}})}>Undo changes</button>`}`}
    </p>
  </article>`}function Y({question:e,title:s,decide:t}){const a=$.value[u(e)]??{},n=_.value?.scopes.includes("run"),r=o=>typeof o=="string"?o:o?.label??JSON.stringify(o),l=o=>(p(e,{is:"answer",message:o}),t(e));return i`<article class="question" aria-label=${s}>
    <${A} thread=${e.thread_id} value=${e.prompt??e.value} />
    <p class="line">${e.options.map(o=>i`<button disabled=${!n} onClick=${()=>l(r(o))}>${r(o)}</button>`)}</p>
    <div class="fields"><label for=${`m-${e.id}`}>Answer</label>
      <textarea id=${`m-${e.id}`} rows="2" disabled=${!n} value=${a.message??""} onInput=${o=>p(e,{message:o.target.value})} /></div>
    <p class="line"><button class="main" data-first disabled=${!n||!a.message} onClick=${()=>l(a.message??"")}>Send</button></p>
  </article>`}function z(e){const s=$.peek()[u(e)]??{};if(s.is==="answer")return s.message??"";const t={decision:s.is,hash:e.value?.hash};if(s.is==="edit"){const a=k(e).at(-1)??groups.peek()?.find(n=>n.questions.includes(e))?.thread.agent;return{...t,args:U(e,h.peek()[a]?.[e.value.tool]).args}}return s.is==="approve"?t:{...t,message:s.message??""}}const w=v([]);async function E({thread:e,questions:s}){const t=e.thread_id,a=s.filter(n=>$.peek()[u(n)]?.is);if(!(!a.length||w.peek().includes(t))){w.value=[...w.peek(),t],m.value={...m.peek(),[t]:""};try{const n=Object.fromEntries(a.map(r=>[r.interrupt_id,z(r)]));await W(e.agent?`/agents/${encodeURIComponent(e.agent)}/resume`:"/agents/resume",{thread_id:t,answer:n,stream:!0}),a.forEach(r=>p(r,null)),groups.value=(groups.peek()??[]).map(r=>r.thread.thread_id===t?{...r,questions:r.questions.filter(l=>!a.includes(l))}:r).filter(r=>r.questions.length)}catch(n){a.forEach(r=>p(r,{is:void 0})),m.value={...m.peek(),[t]:n.message},await look()}w.value=w.peek().filter(n=>n!==t)}}export function Questions({group:e}){const s=T(null),{thread:t,questions:a}=e,n=a.filter(l=>$.value[u(l)]?.is).length,r=()=>{a.every(l=>$.peek()[u(l)]?.is)&&E(e),requestAnimationFrame(()=>requestAnimationFrame(()=>{(s.current?.querySelector("[data-first]")??document.querySelector(".question [data-first]")??document.querySelector("main h1"))?.focus()}))};return i`<div ref=${s}>
    ${a.map((l,o)=>{const f=`${I(l)?l.value.tool:"Question"}, ${o+1} of ${a.length} in ${t.title||t.thread_id}`;return I(l)?i`<${V} key=${l.id} question=${l} agent=${t.agent??""} title=${f} decide=${r} />`:i`<${Y} key=${l.id} question=${l} title=${f} decide=${r} />`})}
    ${n>0&&n<a.length&&i`<p class="line">
      ${n} of ${a.length} are decided; all go together. <button onClick=${()=>E(e)}>Send ${M(n,"decision")} now</button></p>`}
  </div>`}export function Refusal({thread:e}){return i`<p class="bad" role="alert">${m.value[e]}</p>`}export function Approvals(){const e=groups.value,s=Object.entries(m.value).filter(([t,a])=>a&&!e?.some(n=>n.thread.thread_id===t));return i`<main class="page">
    <h1 tabindex="-1">Approvals</h1>
    ${O.value&&i`<p class="bad" role="alert">${O.value}</p>`}
    ${s.map(([t,a])=>i`<p class="bad" role="alert">${a} <a href=${`#/chat/${encodeURIComponent(t)}`}>Look at the thread</a></p>`)}
    ${e?!e.length&&i`<p>Nothing waits for you.</p>`:i`<p class="faint" aria-busy="true">Loading …</p>`}
    ${e&&e.length>0&&i`<p class="faint">In a question, <kbd>a</kbd> approves and <kbd>r</kbd> rejects. What you write stays in this tab until you send it.</p>`}
    ${(e??[]).map(t=>i`<section key=${t.thread.thread_id} class="card">
      <h2><a href=${`#/chat/${encodeURIComponent(t.thread.thread_id)}`}>${t.thread.title||t.thread.thread_id}</a> <span class="faint">${t.thread.agent}</span></h2>
      <${Refusal} thread=${t.thread.thread_id} />
      <${Questions} group=${t} />
    </section>`)}
  </main>`}
