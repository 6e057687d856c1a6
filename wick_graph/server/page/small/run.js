/*46dcea7a*/
import{html as i,signal as I,useEffect as T,useLayoutEffect as F,useMemo as te,useRef as R,useState as v}from"./vendor/preact.js";import{ask as _,can as N,goTo as ne,isAt as H,isFile as U,lines as se,save as re,threadPath as V}from"./api.js";import{Inspector as oe}from"./inspector.js";import{close as G,Debugger as ae,open as ie,resume as le,running as K,said as L,say as Y,session as x}from"./session.js";import{follow as ce}from"./stream.js";import{counted as W,took as ue}from"./values.js";const E=200,w=28,z=8;export class Moments{constructor(s){this.thread=s,this.rows=new Map,this.asked=new Set,this.last=I(0),this.before=0,this.changed=I(0),this.failed=I(""),this.only=I(""),this.found=[],this.isWhole=!1}get count(){return this.only.value?this.found.length:this.last.value-this.before}seq(s){return this.only.value?this.found[s]:s+1+this.before}place(s){if(!this.only.value)return s-1-this.before;const o=this.found.findIndex(t=>t>=s);return o<0?this.found.length-1:o}filter(s){this.only.value=s,this.found=[],this.isWhole=!1,s&&this.more(),this.changed.value++}async more(){const s=this.only.value;if(this.isWhole)return;this.isWhole=!0;const o={after:this.found.at(-1)??0,limit:E,node:s},t=await _(`/threads/${this.thread}/moments`,o);s===this.only.value&&(this.isWhole=t.moments.length<E,this.found=[...this.found,...t.moments.map(r=>r.seq)],this.take(t.moments,t.last))}need(s,o){if(this.only.value){o>=this.found.length&&this.more();return}for(let t=Math.floor((s-1+this.before)/E);t*E<o+this.before;t++)t<0||this.asked.has(t)||(this.asked.add(t),_(`/threads/${this.thread}/moments`,{after:t*E,limit:E}).then(r=>this.take(r.moments,r.last),r=>(this.asked.delete(t),this.failed.value=r.message)))}async grow(){for(;;){const s=await _(`/threads/${this.thread}/moments`,{after:this.last.peek(),limit:500});if(this.take(s.moments,s.last),s.moments.length<500)return}}take(s,o){for(const t of s)this.rows.set(t.seq,t);this.last.value=Math.max(this.last.value,o),this.changed.value++}}function he(e){if(e.kind==="gap")return e.error??"not readable";const s=e.status!=="ok"&&!e.is_left?"✕":de.has(e.phase)?"→":fe.has(e.phase)?"←":"·",o=e.name===e.kind?"":e.name;return[s,e.kind,e.hook_phase,o,pe.has(e.phase)?"":e.phase,e.error].filter(t=>t).join(" ")}const de=new Set(["enter","request","call"]),fe=new Set(["exit","response","error"]),pe=new Set(["enter","exit","taken"]);function $e({moments:e,seq:s,go:o}){const t=R(null),[r,h]=v({top:0,height:600}),c=e.count,m=e.place(s);e.changed.value;const y=()=>{const a=t.current;a&&h({top:a.scrollTop,height:a.clientHeight})},$=R(m);$.current=m;const u=()=>{const a=t.current;if(!a)return;const p=$.current*w;p<a.scrollTop?a.scrollTop=p:p+w>a.scrollTop+a.clientHeight&&(a.scrollTop=p+w-a.clientHeight),y()};F(()=>{const a=new ResizeObserver(u);return t.current&&a.observe(t.current),()=>a.disconnect()},[]),F(u,[m,c]);const b=Math.max(1,Math.floor(r.top/w)+1-z),f=Math.min(c,Math.ceil((r.top+r.height)/w)+z);T(()=>e.need(b,f),[b,f,c,e.only.value]),T(()=>t.current?.focus({preventScroll:!0}),[]);const k=[];for(let a=b;a<=f;a++)k.push(a);const S=a=>{const p=Math.max(1,Math.floor(r.height/w)-1),g={ArrowDown:m+1,ArrowUp:m-1,PageDown:m+p,PageUp:m-p,Home:0,End:c-1}[a.key];g!==void 0&&(a.preventDefault(),o(e.seq(Math.min(Math.max(g,0),c-1))))};return i`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${c} tabindex="0"
    aria-activedescendant=${`m${s}`} ref=${t} onScroll=${y} onKeyDown=${S}>
    <div role="rowgroup" style=${{height:`${c*w}px`}}>
      ${k.map(a=>{const p=e.seq(a-1),g=e.rows.get(p),A=g?`k-${g.kind}${g.status==="ok"||g.is_left?"":" bad"}`:"";return i`<div role="row" key=${p} id=${`m${p}`} aria-rowindex=${a} aria-selected=${p===s}
          class=${`step ${A}`} style=${{top:`${(a-1)*w}px`}} onClick=${()=>o(p)}>
          <span role="gridcell" class="faint number">${p}</span>
          <span role="gridcell" class="faint number">${g?.step?`@${g.step}`:""}</span>
          <span role="gridcell" class="what" style=${{paddingInlineStart:`${(g?.depth??0)*14}px`}}>
            ${g?he(g):"…"}
          </span>
          <span role="gridcell" class="faint number">${ue(g?.duration_us??null)}</span>
        </div>`})}
    </div>
  </div>`}const J=[["step","s","Step"],["next","n","Over"],["finish","f","Out"],["nextnode","m","Node"],["turn","t","Turn"],["next_error","e","Error"],["cont","c","Continue"]],Q={step:"reverse_step",next:"reverse_next",finish:"reverse_finish",nextnode:"prevnode",turn:"prevturn",next_error:"prev_error",cont:"reverse_cont"},me={cont:"continue",reverse_cont:"reverse-continue",next_error:"error next",prev_error:"error prev"};function be({thread:e,go:s}){const[o,t]=v([]),[r,h]=v(""),c=R(null),m=()=>(c.current?.abort(),c.current=null);return T(()=>()=>{m()},[]),i`<form class="row-form" role="search" onSubmit=${async $=>{$.preventDefault(),m(),t([]);const u=$.target.elements.q.value;if(!u)return h("");const b=c.current=new AbortController;let f=0;h("searching …");try{await se(`/threads/${e}/search`,{q:u},b.signal,k=>{f++,f<=200&&t(S=>[...S,JSON.parse(k)]),f>=200&&b.abort()}),h(W(f,"hit"))}catch(k){b.signal.aborted?h(f>=200?"the first 200 hits":"stopped"):h(k.message)}c.current===b&&(c.current=null)}}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${r==="searching …"&&i`<button type="button" onClick=${m}>Stop</button>`}
      <span role="status" class="faint">${r}</span>
    </form>
    ${o.length>0&&i`<ul class="hits">
      ${o.map($=>i`<li><button onClick=${()=>s($.seq)}>${$.line.trim()}</button></li>`)}
    </ul>`}`}function ge({thread:e,moments:s,seq:o,go:t}){const[r,h]=v(null),c=s.last.value;T(()=>{const u=new AbortController,b=setTimeout(()=>_(`/threads/${e}/overview`,void 0,u.signal).then(h,()=>null),r?1e3:0);return()=>(clearTimeout(b),u.abort())},[e,c]);const m=s.before+1,y=u=>(u-m)/Math.max(1,c-m)*1e3,$=(u,b,f)=>u.map(k=>`M${y(k).toFixed(1)} ${b}V${f}`).join("");return i`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${r&&i`<path class="begun" d=${$(r.runs,0,24)} /><path class="asked" d=${$(r.interrupts,6,18)} />
        <path class="forked" d=${$(r.forks,0,10)} /><path class="failed" d=${$(r.errors,10,24)} />`}
    </svg>
    <input type="range" min=${m} max=${c} value=${o} aria-label="Moment" aria-valuetext=${`Moment ${o} of ${c}`}
      onInput=${u=>t(Number(u.target.value))} />
    ${r&&i`<p class="sr">
      ${[[r.runs,"│","run"],[r.errors,"✕","error"],[r.interrupts,"◆","question"],[r.forks,"↳","fork"]].filter(([u])=>u.length).map(([u,b,f])=>`${b} ${W(u.length,f)}`).join("   ")}
    </p>`}
  </div>`}function ke({thread:e,runs:s,run:o,go:t}){if(s.length<2)return null;const r=s.filter(h=>h!==o);return i`<label>Run <select value=${o?.number} onChange=${h=>t(s.find(c=>c.number===Number(h.target.value)).first)}>
      ${s.map(h=>i`<option value=${h.number}>${h.number}${h.branch?`, branch ${h.branch}`:""}: ${h.stopped_because??h.status}</option>`)}
    </select></label>
    ${!U&&i`<a href=${`#/compare/${e}/${o?.number}/${e}/${r.at(-1).number}`}>Compare it</a>`}`}const ye=[["s n f m t e","step, over, out, node, turn, error; with Shift back"],["c C","to the next stop, and back to the one before"],["b","breakpoint at this moment"],["k r","prepare a fork from here, with a list of what it would run"],["p","pause a run"],["y","why: the first change"],["d","differences up to another moment"],["x","compare with another run"],[".","the last moment"],["1 … 9","a tab of the inspector"],["/","search"],[":","a command of the debugger"],["?","these keys"]],X={d:"#to",x:".head a[href*=compare]"};async function ve(){for(let e=0;e<2||e<300&&document.querySelector(".inspector [aria-busy=true]");e++)await new Promise(requestAnimationFrame);document.querySelector(".change [aria-expanded]")?.click()}function xe(e){return e?.tool?`break tool:${e.tool}`:e?.kind==="hook"?`break hook:${e.name}${e.hook_phase?`.${e.hook_phase}`:""}`:e?.kind==="model"?"break model:request":e?.node?`break ${e.node}`:"break run"}export function Run({thread:e,seq:s}){const o=encodeURIComponent(e),t=te(()=>new Moments(o),[o]),[r,h]=v(null),[c,m]=v(""),[y,$]=v(x.peek()!==null),[u,b]=v(!1),f=t.last.value,k=Math.min(Math.max(s,t.before+1),Math.max(f,1)),S=(n,l)=>{H("threads",e)&&ne(`#${V(n)}`,l)},a=n=>S(e,Math.min(Math.max(n,t.before+1),t.last.peek()||1)),p=R(k);p.current=k;const g=R(Promise.resolve()),A=n=>{g.current=g.current.then(n).catch(l=>{L.value=l.message})},M=n=>{if(K.peek())return void Y(n);A(async()=>{if(!x.peek()&&(await ie({thread:e}),!H("threads",e)))return G();const d=(await Y(n,p.current))?.session;if(d){if(d.thread_id!==e)return S(d.thread_id,d.seq??1);await t.grow(),d.seq&&d.seq!==p.current&&d.mode!=="REPLAY"&&a(p.current=d.seq)}})},O=n=>{if(x.peek())return M(me[n]??n.replace("_","-"));A(async()=>{const l=await _(`/threads/${o}/moments/${p.current}/move`,{verb:n});L.value=l.text,l.seq&&a(p.current=l.seq)})};T(()=>{const n=new AbortController;return x.peek()||(L.value=""),N("debug")&&le(e).then(l=>l&&$(!0)),t.need(Math.max(1,s-20),Math.max(s+40,60)),Promise.all(["","/recording"].map(l=>_(`/threads/${o}${l}`,void 0,n.signal))).then(async([l,d])=>{t.before=(d.first??1)-1,t.last.value=d.last,h({info:l,recording:d}),l.status==="running"&&t.asked.clear();const B=ce("moments",e,d.last,j=>t.take([j],j.seq));n.signal.addEventListener("abort",B)}).catch(l=>n.signal.aborted||m(l.message)),()=>{n.abort(),setTimeout(()=>x.peek()&&!H("threads",x.peek()?.thread_id)&&G())}},[o]),t.changed.value;const q=t.rows.get(k),Z=n=>{if(n.ctrlKey||n.metaKey||n.altKey||n.target.matches("input:not([type=range]), textarea, select"))return;const l=J.find(([,B])=>B===n.key.toLowerCase()),d=document.querySelectorAll(".inspector [role=tab]")[Number(n.key)-1];if(n.key==="/")document.getElementById("q")?.focus();else if(n.key==="?")b(!u);else if(n.key===".")a(f);else if(n.key in X)document.querySelector(X[n.key])?.[n.key==="d"?"focus":"click"]();else if(n.key==="y")A(ve);else if(n.key==="p")K.peek()&&M("pause");else if(d instanceof HTMLElement)d.click();else if(l)O(n.key===l[1]?l[0]:Q[l[0]]);else if(N("debug"))if(n.key==="b")$(!0),M(xe(q));else if(n.key==="k"||n.key==="r")$(!0),M("fork");else if(n.key===":")$(!0),setTimeout(()=>document.getElementById("line")?.focus());else return;else return;n.preventDefault()};if(c)return i`<main><p class="bad" role="alert">${c}</p><p><a href="#/">All threads</a></p></main>`;if(!r)return i`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;const D=r.recording.runs,C=D.find(n=>n.number===q?.run)??D.at(-1),P=x.value?.executes??!1,ee={thread:o,seq:k,go:a,row:q,moments:t,node:q?.node??null,does:N("debug")?M:null};return i`<main class=${y?"run with-debugger":"run"} onKeyDown=${Z}>
    <div class="head">
      <h1>${r.info.title||e}</h1>
      <p class="faint line">
        ${[r.info.agent,C&&`run ${C.number} of ${D.length} with ${C.model}, ${C.stopped_because??C.status}`,W(f,"moment"),q?.branch?`branch ${q.branch}`:"",x.value?.mode].filter(n=>n).join(" · ")}
        <${ke} thread=${o} runs=${D} run=${C} go=${a} />
        ${r.info.agent&&i`<a href=${`#/chat/${o}`}>Chat</a>`}
        ${!U&&f>0&&i`<button class="quiet" title="One file that shows this recording offline; secrets are hidden"
          onClick=${()=>re(`/threads/${o}/export`,`${e}.html`).catch(n=>{L.value=n.message})}>Export</button>`}
        ${(r.info.above||r.info.parent)&&i`<a href=${r.info.above??`#${V(r.info.parent)}`}>The run that made this thread</a>`}
      </p>
      ${r.recording.notes.map(n=>i`<p class="note">${n}</p>`)}
      ${t.failed.value&&i`<p class="bad" role="alert">${t.failed.value}</p>`}
      ${f>1&&i`<${ge} thread=${o} moments=${t} seq=${k} go=${a} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${P?"Move; forwards runs the agent":"Move; this runs nothing"}>
        ${J.map(([n,l,d])=>i`<span class="pair">
          <button title=${`Back: ${d.toLowerCase()} (${l.toUpperCase()})`} aria-label=${`Back: ${d.toLowerCase()}`}
            onClick=${()=>O(Q[n])}>◀</button>
          <button class=${P&&n!=="next_error"?"runs":""} disabled=${K.value} title=${`${d} (${l})`} onClick=${()=>O(n)}>
            ${P&&n!=="next_error"?`Run: ${d.toLowerCase()}`:d} ▶</button>
        </span>`)}
        ${N("debug")&&i`<button aria-expanded=${y} onClick=${()=>$(!y)}>Debugger</button>`}
        <button aria-expanded=${u} aria-label="Keys" onClick=${()=>b(!u)}>?</button>
      </div>
      ${u&&i`<dl class="keys">${ye.map(([n,l])=>i`<dt><kbd>${n}</kbd></dt><dd>${l}</dd>`)}</dl>`}
      <${be} thread=${o} go=${a} />
      ${t.only.value&&i`<p class="line row-form">Only <b>${t.only.value}</b>
        <button onClick=${()=>t.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${L.value}</p>
      ${f?i`<${$e} moments=${t} seq=${k} go=${a} />`:i`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${f>0&&i`<${oe} ...${ee} />`}
    ${y&&i`<${ae} does=${M} />`}
  </main>`}
