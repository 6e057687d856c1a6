/*41d17acf20eb3afb*/
import{html as a,signal as L,useEffect as A,useLayoutEffect as j,useMemo as Z,useRef as _,useState as x}from"./vendor/preact.js";import{ask as E,goTo as ee,isFile as F,lines as te,save as ne}from"./api.js";import{Inspector as se}from"./inspector.js";import{close as re,Debugger as oe,mayDebug as N,open as ae,resume as ie,running as P,said as T,say as V,session as w}from"./session.js";import{follow as le}from"./stream.js";import{counted as U,took as ce}from"./values.js";const R=200,S=28,G=8;export class Moments{constructor(s){this.thread=s,this.rows=new Map,this.asked=new Set,this.last=L(0),this.before=0,this.changed=L(0),this.failed=L(""),this.only=L(""),this.found=[],this.isWhole=!1}get count(){return this.only.value?this.found.length:this.last.value-this.before}seq(s){return this.only.value?this.found[s]:s+1+this.before}place(s){if(!this.only.value)return s-1-this.before;const o=this.found.findIndex(t=>t>=s);return o<0?this.found.length-1:o}filter(s){this.only.value=s,this.found=[],this.isWhole=!1,s&&this.more(),this.changed.value++}async more(){const s=this.only.value;if(this.isWhole)return;this.isWhole=!0;const o={after:this.found.at(-1)??0,limit:R,node:s},t=await E(`/threads/${this.thread}/moments`,o);s===this.only.value&&(this.isWhole=t.moments.length<R,this.found=[...this.found,...t.moments.map(r=>r.seq)],this.take(t.moments,t.last))}need(s,o){if(this.only.value){o>=this.found.length&&this.more();return}for(let t=Math.floor((s-1+this.before)/R);t*R<o+this.before;t++)t<0||this.asked.has(t)||(this.asked.add(t),E(`/threads/${this.thread}/moments`,{after:t*R,limit:R}).then(r=>this.take(r.moments,r.last),r=>(this.asked.delete(t),this.failed.value=r.message)))}async grow(){for(;;){const s=await E(`/threads/${this.thread}/moments`,{after:this.last.peek(),limit:500});if(this.take(s.moments,s.last),s.moments.length<500)return}}take(s,o){for(const t of s)this.rows.set(t.seq,t);this.last.value=Math.max(this.last.value,o),this.changed.value++}}function ue(e){if(e.kind==="gap")return e.error??"not readable";const s=e.status!=="ok"&&!e.is_left?"✕":he.has(e.phase)?"→":fe.has(e.phase)?"←":"·",o=e.name===e.kind?"":e.name;return[s,e.kind,e.hook_phase,o,de.has(e.phase)?"":e.phase,e.error].filter(t=>t).join(" ")}const he=new Set(["enter","request","call"]),fe=new Set(["exit","response","error"]),de=new Set(["enter","exit","taken"]);function pe({moments:e,seq:s,go:o}){const t=_(null),[r,f]=x({top:0,height:600}),c=e.count,b=e.place(s);e.changed.value;const y=()=>{const i=t.current;i&&f({top:i.scrollTop,height:i.clientHeight})},m=_(b);m.current=b;const u=()=>{const i=t.current;if(!i)return;const h=m.current*S;h<i.scrollTop?i.scrollTop=h:h+S>i.scrollTop+i.clientHeight&&(i.scrollTop=h+S-i.clientHeight),y()};j(()=>{const i=new ResizeObserver(u);return t.current&&i.observe(t.current),()=>i.disconnect()},[]),j(u,[b,c]);const g=Math.max(1,Math.floor(r.top/S)+1-G),p=Math.min(c,Math.ceil((r.top+r.height)/S)+G);A(()=>e.need(g,p),[g,p,c,e.only.value]),A(()=>t.current?.focus({preventScroll:!0}),[]);const k=[];for(let i=g;i<=p;i++)k.push(i);const v=i=>{const h=Math.max(1,Math.floor(r.height/S)-1),$={ArrowDown:b+1,ArrowUp:b-1,PageDown:b+h,PageUp:b-h,Home:0,End:c-1}[i.key];$!==void 0&&(i.preventDefault(),o(e.seq(Math.min(Math.max($,0),c-1))))};return a`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${c} tabindex="0"
    aria-activedescendant=${`m${s}`} ref=${t} onScroll=${y} onKeyDown=${v}>
    <div role="rowgroup" style=${{height:`${c*S}px`}}>
      ${k.map(i=>{const h=e.seq(i-1),$=e.rows.get(h),I=$?`k-${$.kind}${$.status==="ok"||$.is_left?"":" bad"}`:"";return a`<div role="row" key=${h} id=${`m${h}`} aria-rowindex=${i} aria-selected=${h===s}
          class=${`step ${I}`} style=${{top:`${(i-1)*S}px`}} onClick=${()=>o(h)}>
          <span role="gridcell" class="faint number">${h}</span>
          <span role="gridcell" class="faint number">${$?.step?`@${$.step}`:""}</span>
          <span role="gridcell" class="what" style=${{paddingInlineStart:`${($?.depth??0)*14}px`}}>
            ${$?ue($):"…"}
          </span>
          <span role="gridcell" class="faint number">${ce($?.duration_us??null)}</span>
        </div>`})}
    </div>
  </div>`}const Y=[["step","s","Step"],["next","n","Over"],["finish","f","Out"],["nextnode","m","Node"],["turn","t","Turn"],["next_error","e","Error"],["cont","c","Continue"]],z={step:"reverse_step",next:"reverse_next",finish:"reverse_finish",nextnode:"prevnode",turn:"prevturn",next_error:"prev_error",cont:"reverse_cont"},$e={cont:"continue",reverse_cont:"reverse-continue",next_error:"error next",prev_error:"error prev"};function me({thread:e,go:s}){const[o,t]=x([]),[r,f]=x(""),c=_(null),b=()=>(c.current?.abort(),c.current=null);return A(()=>()=>{b()},[]),a`<form class="row-form" role="search" onSubmit=${async m=>{m.preventDefault(),b(),t([]);const u=m.target.elements.q.value;if(!u)return f("");const g=c.current=new AbortController;let p=0;f("searching …");try{await te(`/threads/${e}/search`,{q:u},g.signal,k=>{p++,p<=200&&t(v=>[...v,JSON.parse(k)]),p>=200&&g.abort()}),f(U(p,"hit"))}catch(k){g.signal.aborted?f(p>=200?"the first 200 hits":"stopped"):f(k.message)}c.current===g&&(c.current=null)}}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${r==="searching …"&&a`<button type="button" onClick=${b}>Stop</button>`}
      <span role="status" class="faint">${r}</span>
    </form>
    ${o.length>0&&a`<ul class="hits">
      ${o.map(m=>a`<li><button onClick=${()=>s(m.seq)}>${m.line.trim()}</button></li>`)}
    </ul>`}`}function be({thread:e,moments:s,seq:o,go:t}){const[r,f]=x(null),c=s.last.value;A(()=>{const u=new AbortController,g=setTimeout(()=>E(`/threads/${e}/overview`,void 0,u.signal).then(f,()=>null),r?1e3:0);return()=>(clearTimeout(g),u.abort())},[e,c]);const b=s.before+1,y=u=>(u-b)/Math.max(1,c-b)*1e3,m=(u,g,p)=>u.map(k=>`M${y(k).toFixed(1)} ${g}V${p}`).join("");return a`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${r&&a`<path class="begun" d=${m(r.runs,0,24)} /><path class="asked" d=${m(r.interrupts,6,18)} />
        <path class="forked" d=${m(r.forks,0,10)} /><path class="failed" d=${m(r.errors,10,24)} />`}
    </svg>
    <input type="range" min=${b} max=${c} value=${o} aria-label="Moment" aria-valuetext=${`Moment ${o} of ${c}`}
      onInput=${u=>t(Number(u.target.value))} />
    ${r&&a`<p class="sr">
      ${[[r.runs,"│","run"],[r.errors,"✕","error"],[r.interrupts,"◆","question"],[r.forks,"↳","fork"]].filter(([u])=>u.length).map(([u,g,p])=>`${g} ${U(u.length,p)}`).join("   ")}
    </p>`}
  </div>`}function ge({thread:e,runs:s,run:o,go:t}){if(s.length<2)return null;const r=s.filter(f=>f!==o);return a`<label>Run <select value=${o?.number} onChange=${f=>t(s.find(c=>c.number===Number(f.target.value)).first)}>
      ${s.map(f=>a`<option value=${f.number}>${f.number}${f.branch?`, branch ${f.branch}`:""}: ${f.stopped_because??f.status}</option>`)}
    </select></label>
    ${!F&&a`<a href=${`#/compare/${e}/${o?.number}/${e}/${r.at(-1).number}`}>Compare it</a>`}`}const ke=[["s n f m t e","step, over, out, node, turn, error; with Shift back"],["c C","to the next stop, and back to the one before"],["b","breakpoint at this moment"],["k r","prepare a fork from here, with a list of what it would run"],["p","pause a run"],["y","why: the first change"],["d","differences up to another moment"],["x","compare with another run"],[".","the last moment"],["1 … 9","a tab of the inspector"],["/","search"],[":","a command of the debugger"],["?","these keys"]],J={d:"#to",x:".head a[href*=compare]"};async function ye(){for(let e=0;e<2||e<300&&document.querySelector(".inspector [aria-busy=true]");e++)await new Promise(requestAnimationFrame);document.querySelector(".change [aria-expanded]")?.click()}function ve(e){return e?.tool?`break tool:${e.tool}`:e?.kind==="hook"?`break hook:${e.name}${e.hook_phase?`.${e.hook_phase}`:""}`:e?.kind==="model"?"break model:request":e?.node?`break ${e.node}`:"break run"}export function Run({thread:e,seq:s}){const o=encodeURIComponent(e),t=Z(()=>new Moments(o),[o]),[r,f]=x(null),[c,b]=x(""),[y,m]=x(w.peek()!==null),[u,g]=x(!1),p=t.last.value,k=Math.min(Math.max(s,t.before+1),Math.max(p,1)),v=_("");v.current=e;const i=(n,l)=>{v.current===e&&ee(`#/threads/${encodeURIComponent(n)}`,l)},h=n=>i(e,Math.min(Math.max(n,t.before+1),t.last.peek()||1)),$=_(k);$.current=k;const I=_(Promise.resolve()),O=n=>{I.current=I.current.then(n).catch(l=>{T.value=l.message})},M=n=>{if(P.peek())return void V(n);O(async()=>{w.peek()||await ae({thread:e});const d=(await V(n,$.current))?.session;if(d){if(d.thread_id!==e)return i(d.thread_id,d.seq??1);await t.grow(),d.seq&&d.seq!==$.current&&d.mode!=="REPLAY"&&h($.current=d.seq)}})},B=n=>{if(w.peek())return M($e[n]??n.replace("_","-"));O(async()=>{const l=await E(`/threads/${o}/moments/${$.current}/move`,{verb:n});T.value=l.text,l.seq&&h($.current=l.seq)})};A(()=>{const n=new AbortController;return w.peek()||(T.value=""),N()&&ie(e).then(l=>l&&m(!0)),t.need(Math.max(1,s-20),Math.max(s+40,60)),Promise.all(["","/recording"].map(l=>E(`/threads/${o}${l}`,void 0,n.signal))).then(async([l,d])=>{t.before=(d.first??1)-1,t.last.value=d.last,f({info:l,recording:d}),l.status==="running"&&t.asked.clear();const K=le("moments",e,d.last,W=>t.take([W],W.seq));n.signal.addEventListener("abort",K)}).catch(l=>n.signal.aborted||b(l.message)),()=>{n.abort(),v.current===e&&(v.current=""),setTimeout(()=>w.peek()&&!location.hash.startsWith(`#/threads/${encodeURIComponent(w.peek()?.thread_id??"")}`)&&re())}},[o]),t.changed.value;const q=t.rows.get(k),Q=n=>{if(n.ctrlKey||n.metaKey||n.altKey||n.target.matches("input:not([type=range]), textarea, select"))return;const l=Y.find(([,K])=>K===n.key.toLowerCase()),d=document.querySelectorAll(".inspector [role=tab]")[Number(n.key)-1];if(n.key==="/")document.getElementById("q")?.focus();else if(n.key==="?")g(!u);else if(n.key===".")h(p);else if(n.key in J)document.querySelector(J[n.key])?.[n.key==="d"?"focus":"click"]();else if(n.key==="y")O(ye);else if(n.key==="p")P.peek()&&M("pause");else if(d instanceof HTMLElement)d.click();else if(l)B(n.key===l[1]?l[0]:z[l[0]]);else if(N())if(n.key==="b")m(!0),M(ve(q));else if(n.key==="k"||n.key==="r")m(!0),M("fork");else if(n.key===":")m(!0),setTimeout(()=>document.getElementById("line")?.focus());else return;else return;n.preventDefault()};if(c)return a`<main><p class="bad" role="alert">${c}</p><p><a href="#/">All threads</a></p></main>`;if(!r)return a`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;const D=r.recording.runs,C=D.find(n=>n.number===q?.run)??D.at(-1),H=w.value?.executes??!1,X={thread:o,seq:k,go:h,row:q,moments:t,node:q?.node??null,does:N()?M:null};return a`<main class=${y?"run with-debugger":"run"} onKeyDown=${Q}>
    <div class="head">
      <h1>${r.info.title||e}</h1>
      <p class="faint line">
        ${[r.info.agent,C&&`run ${C.number} of ${D.length} with ${C.model}, ${C.stopped_because??C.status}`,U(p,"moment"),q?.branch?`branch ${q.branch}`:"",w.value?.mode].filter(n=>n).join(" · ")}
        <${ge} thread=${o} runs=${D} run=${C} go=${h} />
        ${r.info.agent&&a`<a href=${`#/chat/${o}`}>Chat</a>`}
        ${!F&&p>0&&a`<button class="quiet" title="One file that shows this recording offline; secrets are hidden"
          onClick=${()=>ne(`/threads/${o}/export`,`${e}.html`).catch(n=>{T.value=n.message})}>Export</button>`}
        ${(r.info.above||r.info.parent)&&a`<a href=${r.info.above??`#/threads/${encodeURIComponent(r.info.parent)}`}>The run that made this thread</a>`}
      </p>
      ${r.recording.notes.map(n=>a`<p class="note">${n}</p>`)}
      ${t.failed.value&&a`<p class="bad" role="alert">${t.failed.value}</p>`}
      ${p>1&&a`<${be} thread=${o} moments=${t} seq=${k} go=${h} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${H?"Move; forwards runs the agent":"Move; this runs nothing"}>
        ${Y.map(([n,l,d])=>a`<span class="pair">
          <button title=${`Back: ${d.toLowerCase()} (${l.toUpperCase()})`} aria-label=${`Back: ${d.toLowerCase()}`}
            onClick=${()=>B(z[n])}>◀</button>
          <button class=${H&&n!=="next_error"?"runs":""} disabled=${P.value} title=${`${d} (${l})`} onClick=${()=>B(n)}>
            ${H&&n!=="next_error"?`Run: ${d.toLowerCase()}`:d} ▶</button>
        </span>`)}
        ${N()&&a`<button aria-expanded=${y} onClick=${()=>m(!y)}>Debugger</button>`}
        <button aria-expanded=${u} aria-label="Keys" onClick=${()=>g(!u)}>?</button>
      </div>
      ${u&&a`<dl class="keys">${ke.map(([n,l])=>a`<dt><kbd>${n}</kbd></dt><dd>${l}</dd>`)}</dl>`}
      <${me} thread=${o} go=${h} />
      ${t.only.value&&a`<p class="line row-form">Only <b>${t.only.value}</b>
        <button onClick=${()=>t.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${T.value}</p>
      ${p?a`<${pe} moments=${t} seq=${k} go=${h} />`:a`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${p>0&&a`<${se} ...${X} />`}
    ${y&&a`<${oe} does=${M} />`}
  </main>`}
