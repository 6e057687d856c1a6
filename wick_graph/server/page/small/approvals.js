/*18592c51*/
import{html as l,signal as v,useEffect as W,useRef as L}from"./vendor/preact.js";import{ask as A,begin as M,can as _,current as P,threadPath as Q}from"./api.js";import{listen as T}from"./stream.js";import{counted as B,plain as V,Value as O}from"./values.js";export const groups=v(null);const x=v(""),b=v({}),R="wick-drafts",u=v(JSON.parse(sessionStorage.getItem(R)??"{}")),k=e=>Array.isArray(e.value?.agents)?e.value.agents.map(String):[],I=e=>e.kind==="approval"&&typeof e.value?.tool=="string"&&Object(e.value.args)===e.value.args,p=e=>`${e.id} ${e.value?.hash??""}`;function $(e,s){const{[p(e)]:t,...r}=u.value;u.value=s?{...r,[p(e)]:{...t,...s}}:r,sessionStorage.setItem(R,JSON.stringify(u.value))}async function Y(){const e=await A("/threads",{status:"waiting",limit:100});return Promise.all(e.map(async s=>({thread:s,questions:await A(`${Q(s.thread_id)}/approvals`).catch(()=>[])})))}let N=0,z=0,J=0;export async function look(){const e=++z,s=()=>e<J||!(J=e);try{const t=await P(Y);if(s())return;const r=t.flatMap(({thread:n,questions:o})=>o.map(a=>`${n.thread_id} ${k(a).at(-1)} ${a.value?.tool}`));groups.value=t.filter(({thread:n,questions:o})=>{const a=o[0]?.value?.tool;return o.length&&!(n.parent&&r.includes(`${n.parent} ${n.agent} ${a}`))}),x.value=""}catch(t){s()||(x.value=t.message)}}let E=!1;export function watch(){E||(E=!0,look(),T(()=>N||=setTimeout(()=>(N=0,look()),300)))}const C=e=>Array.isArray(e?.enum)?"enum":["string","boolean"].includes(e?.type)?e.type:"json",G=(e,s)=>C(s)==="string"&&typeof e=="string"?e:JSON.stringify(e);function U(e,s){const t={...e.value?.args},r=u.value[p(e)]?.args??{};let n="";for(const[a,i]of Object.entries(r)){const f=C(s?.properties?.[a])==="string"&&(typeof t[a]=="string"||!(a in t));try{i===""&&!f?delete t[a]:t[a]=f?i:JSON.parse(i)}catch{n=`${a}: write JSON, such as 5, "text" or [1, 2]`}}const o=[...new Set([...Object.keys(t),...Object.keys(e.value?.args??{})])].filter(a=>JSON.stringify(t[a])!==JSON.stringify(e.value?.args?.[a]));return{args:t,changed:o,error:n}}function H({question:e,name:s,schema:t,isDone:r}){const n=`${e.id} ${s}`.replace(/\s/g,"-"),o=e.value?.args?.[s],a=u.value[p(e)]?.args?.[s]??(o===void 0?"":G(o,t)),i=d=>$(e,{args:{...u.value[p(e)]?.args,[s]:d}}),f=d=>i(d.target.value),g=o!==void 0&&t?.type==="string"&&typeof o!="string"?"json":C(t),j=g==="boolean"?[!0,!1]:t?.enum;return l`<label for=${n}>${s}</label>
    ${j&&g!=="string"&&g!=="json"?l`<select id=${n} disabled=${r} onChange=${f}>
          ${[...new Set([a,...j.map(d=>JSON.stringify(d))])].map(d=>l`<option value=${d} selected=${d===a}>${d}</option>`)}
        </select>`:l`<textarea id=${n} disabled=${r} rows=${Math.min(8,a.split(`
`).length)} spellcheck="false"
          value=${a} onInput=${f} title=${typeof t?.description=="string"?t.description:s} />`}
    ${V(a)!==a&&l`<b class="bad">Exact</b><${O} thread="" value=${a} />`}`}const h=v({});function X(e){!e||e in h.peek()||(h.value={...h.peek(),[e]:{}},A(`/agents/${encodeURIComponent(e)}/flow`).then(s=>h.value={...h.peek(),[e]:s.schemas},()=>null))}function Z({question:e,agent:s,title:t,decide:r}){const n=k(e).at(-1)??s;W(()=>X(n),[n]);const o=u.value[p(e)]??{},a=h.value[n]?.[e.value?.tool],{changed:i,args:f,error:g}=U(e,a),j=[...new Set([...Object.keys(e.value?.args??{}),...Object.keys(a?.properties??{})])],d=o.is!==void 0,m=_("approve"),S=c=>($(e,{is:c}),r(e)),D=c=>{if(!(c.target.matches("textarea, select, input")||c.ctrlKey||c.metaKey||c.altKey||d||!m)){if(c.key==="a"&&!g)S(i.length?"edit":"approve");else if(c.key==="r")$(e,{opens:"reject"});else return;c.preventDefault()}},F={reject:"Reason, which the model reads",respond:"Result, which the model reads"},y=o.opens;return l`<article class=${`question${d?" decided":""}`} aria-label=${t} onKeyDown=${D}>
    <p class="line"><b>${e.value?.tool}</b> <span class="faint">${e.value?.why}${k(e).length>0&&` · asked by ${k(e).join(" › ")}`}</span></p>
    <div class="fields">
      ${j.map(c=>l`<${H} key=${c} question=${e} name=${c} schema=${a?.properties?.[c]} isDone=${d||!m} />`)}
    </div>
    ${i.length>0&&l`<ul class="changes" aria-label="What you changed">
      ${i.map(c=>l`<li class="change">
        <code>${c}</code>
        <div class="before"><span class="sr">before: </span><${O} thread=${e.thread_id} value=${e.value?.args?.[c]??null} /></div>
        <div class="after"><span class="sr">after: </span><${O} thread=${e.thread_id} value=${f[c]??null} /></div>
      </li>`)}
    </ul>`}
    ${g&&l`<p class="bad" role="alert">${g}</p>`}
    ${y&&!d&&l`<div class="fields"><label for=${`m-${e.id}`}>${F[y]}</label>
      <textarea id=${`m-${e.id}`} rows="2" value=${o.message??""} onInput=${c=>$(e,{message:c.target.value})} /></div>`}
    <p class="line">
      ${d?l`<span class="good">✓ ${{approve:"Approved",edit:"Approved with changes",reject:"Rejected",respond:"Answered"}[o.is]}</span>
            <button data-undo onClick=${()=>$(e,{is:void 0,opens:void 0})}>Undo</button>`:y?l`<button class="main" onClick=${()=>S(y)}>${y==="reject"?"Reject":"Answer"}</button>
              <button onClick=${()=>$(e,{opens:void 0})}>Back</button>`:l`<button class="main" data-first disabled=${!m||g!==""} onClick=${()=>S(i.length?"edit":"approve")}>
                ${i.length?"Approve with changes":"Approve"}</button>
              <button disabled=${!m} onClick=${()=>$(e,{opens:"reject"})}>Reject …</button>
              <button disabled=${!m} onClick=${()=>$(e,{opens:"respond"})}>Answer for it …</button>
              ${i.length>0&&l`<button onClick=${()=>$(e,{args:{}})}>Undo changes</button>`}`}
    </p>
  </article>`}function q({question:e,title:s,decide:t}){const r=u.value[p(e)]??{},n=_("run"),o=i=>typeof i=="string"?i:i?.label??JSON.stringify(i),a=i=>($(e,{is:"answer",message:i}),t(e));return l`<article class="question" aria-label=${s}>
    <${O} thread=${e.thread_id} value=${e.prompt??e.value} />
    <p class="line">${e.options.map(i=>l`<button disabled=${!n} onClick=${()=>a(o(i))}>${o(i)}</button>`)}</p>
    <div class="fields"><label for=${`m-${e.id}`}>Answer</label>
      <textarea id=${`m-${e.id}`} rows="2" disabled=${!n} value=${r.message??""} onInput=${i=>$(e,{message:i.target.value})} /></div>
    <p class="line"><button class="main" data-first disabled=${!n||!r.message} onClick=${()=>a(r.message??"")}>Send</button></p>
  </article>`}function ee(e){const s=u.peek()[p(e)]??{};if(s.is==="answer")return s.message??"";const t={decision:s.is,hash:e.value?.hash};if(s.is==="edit"){const r=k(e).at(-1)??groups.peek()?.find(n=>n.questions.includes(e))?.thread.agent;return{...t,args:U(e,h.peek()[r]?.[e.value.tool]).args}}return s.is==="approve"?t:{...t,message:s.message??""}}const w=v([]);async function K({thread:e,questions:s}){const t=e.thread_id,r=s.filter(n=>u.peek()[p(n)]?.is);if(!(!r.length||w.peek().includes(t))){w.value=[...w.peek(),t],b.value={...b.peek(),[t]:""};try{const n=Object.fromEntries(r.map(a=>[a.interrupt_id,ee(a)]));await M(e.agent?`/agents/${encodeURIComponent(e.agent)}/resume`:"/agents/resume",{thread_id:t,answer:n,stream:!0});const o=r.map(p);r.forEach(a=>$(a,null)),groups.value=(groups.peek()??[]).map(a=>({...a,questions:a.questions.filter(i=>!o.includes(p(i)))})).filter(a=>a.questions.length)}catch(n){r.forEach(o=>$(o,{is:void 0})),b.value={...b.peek(),[t]:n.message},await look()}w.value=w.peek().filter(n=>n!==t)}}export function Questions({group:e}){const s=L(null),{thread:t,questions:r}=e,n=r.filter(a=>u.value[p(a)]?.is).length,o=()=>{r.every(a=>u.peek()[p(a)]?.is)&&K(e),requestAnimationFrame(()=>requestAnimationFrame(()=>{(s.current?.querySelector("[data-first]")??document.querySelector(".question [data-first]")??document.querySelector("main h1"))?.focus()}))};return l`<div ref=${s}>
    ${r.map((a,i)=>{const f=`${I(a)?a.value.tool:"Question"}, ${i+1} of ${r.length} in ${t.title||t.thread_id}`;return I(a)?l`<${Z} key=${a.id} question=${a} agent=${t.agent??""} title=${f} decide=${o} />`:l`<${q} key=${a.id} question=${a} title=${f} decide=${o} />`})}
    ${n>0&&n<r.length&&l`<p class="line">
      ${n} of ${r.length} are decided; all go together. <button onClick=${()=>K(e)}>Send ${B(n,"decision")} now</button></p>`}
  </div>`}export function Refusal({thread:e}){return l`<p class="bad" role="alert">${b.value[e]}</p>`}export function Approvals(){const e=groups.value,s=Object.entries(b.value).filter(([t,r])=>r&&!e?.some(n=>n.thread.thread_id===t));return l`<main class="page">
    <h1 tabindex="-1">Approvals</h1>
    ${x.value&&l`<p class="bad" role="alert">${x.value}</p>`}
    ${s.map(([t,r])=>l`<p class="bad" role="alert">${r} <a href=${`#/chat/${encodeURIComponent(t)}`}>Look at the thread</a></p>`)}
    ${e?!e.length&&l`<p>Nothing waits for you.</p>`:l`<p class="faint" aria-busy="true">Loading …</p>`}
    ${e&&e.length>0&&l`<p class="faint">In a question, <kbd>a</kbd> approves and <kbd>r</kbd> rejects. What you write stays in this tab until you send it.</p>`}
    ${(e??[]).map(t=>l`<section key=${t.thread.thread_id} class="card">
      <h2><a href=${`#/chat/${encodeURIComponent(t.thread.thread_id)}`}>${t.thread.title||t.thread.thread_id}</a> <span class="faint">${t.thread.agent}</span></h2>
      <${Refusal} thread=${t.thread.thread_id} />
      <${Questions} group=${t} />
    </section>`)}
  </main>`}
