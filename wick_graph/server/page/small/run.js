/*2b53306194ef26b3*/
import{html as c,signal as L,useEffect as A,useLayoutEffect as W,useMemo as J,useRef as R,useState as y}from"./vendor/preact.js";import{ask as _,lines as Q}from"./api.js";import{Inspector as X}from"./inspector.js";import{close as Z,Debugger as ee,mayDebug as T,open as te,resume as ne,running as U,said as N,say as j,session as x}from"./session.js";import{follow as se}from"./stream.js";import{counted as K,took as re}from"./values.js";const q=200,w=28,V=8;export class Moments{constructor(s){this.thread=s,this.rows=new Map,this.asked=new Set,this.last=L(0),this.changed=L(0),this.failed=L(""),this.only=L(""),this.found=[],this.isWhole=!1}get count(){return this.only.value?this.found.length:this.last.value}seq(s){return this.only.value?this.found[s]:s+1}place(s){if(!this.only.value)return s-1;const r=this.found.findIndex(e=>e>=s);return r<0?this.found.length-1:r}filter(s){this.only.value=s,this.found=[],this.isWhole=!1,s&&this.more(),this.changed.value++}async more(){const s=this.only.value;if(this.isWhole)return;this.isWhole=!0;const r={after:this.found.at(-1)??0,limit:q,node:s},e=await _(`/threads/${this.thread}/moments`,r);s===this.only.value&&(this.isWhole=e.moments.length<q,this.found=[...this.found,...e.moments.map(a=>a.seq)],this.take(e.moments,e.last))}need(s,r){if(this.only.value){r>=this.found.length&&this.more();return}for(let e=Math.floor((s-1)/q);e*q<r;e++)e<0||this.asked.has(e)||(this.asked.add(e),_(`/threads/${this.thread}/moments`,{after:e*q,limit:q}).then(a=>this.take(a.moments,a.last),a=>(this.asked.delete(e),this.failed.value=a.message)))}async grow(){for(;;){const s=await _(`/threads/${this.thread}/moments`,{after:this.last.peek(),limit:500});if(this.take(s.moments,s.last),s.moments.length<500)return}}take(s,r){for(const e of s)this.rows.set(e.seq,e);this.last.value=Math.max(this.last.value,r),this.changed.value++}}function ae(t){if(t.kind==="gap")return t.error??"not readable";const s=t.status!=="ok"&&!t.is_left?"✕":oe.has(t.phase)?"→":ie.has(t.phase)?"←":"·",r=t.name===t.kind?"":t.name;return[s,t.kind,t.hook_phase,r,le.has(t.phase)?"":t.phase,t.error].filter(e=>e).join(" ")}const oe=new Set(["enter","request","call"]),ie=new Set(["exit","response","error"]),le=new Set(["enter","exit","taken"]);function ce({moments:t,seq:s,go:r}){const e=R(null),[a,h]=y({top:0,height:600}),u=t.count,b=t.place(s);t.changed.value;const k=()=>{const o=e.current;o&&h({top:o.scrollTop,height:o.clientHeight})},i=R(b);i.current=b;const $=()=>{const o=e.current;if(!o)return;const d=i.current*w;d<o.scrollTop?o.scrollTop=d:d+w>o.scrollTop+o.clientHeight&&(o.scrollTop=d+w-o.clientHeight),k()};W(()=>{const o=new ResizeObserver($);return e.current&&o.observe(e.current),()=>o.disconnect()},[]),W($,[b,u]);const g=Math.max(1,Math.floor(a.top/w)+1-V),f=Math.min(u,Math.ceil((a.top+a.height)/w)+V);A(()=>t.need(g,f),[g,f,u,t.only.value]),A(()=>e.current?.focus({preventScroll:!0}),[]);const v=[];for(let o=g;o<=f;o++)v.push(o);const M=o=>{const d=Math.max(1,Math.floor(a.height/w)-1),m={ArrowDown:b+1,ArrowUp:b-1,PageDown:b+d,PageUp:b-d,Home:0,End:u-1}[o.key];m!==void 0&&(o.preventDefault(),r(t.seq(Math.min(Math.max(m,0),u-1))))};return c`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${u} tabindex="0"
    aria-activedescendant=${`m${s}`} ref=${e} onScroll=${k} onKeyDown=${M}>
    <div role="rowgroup" style=${{height:`${u*w}px`}}>
      ${v.map(o=>{const d=t.seq(o-1),m=t.rows.get(d),I=m?`k-${m.kind}${m.status==="ok"||m.is_left?"":" bad"}`:"";return c`<div role="row" key=${d} id=${`m${d}`} aria-rowindex=${o} aria-selected=${d===s}
          class=${`step ${I}`} style=${{top:`${(o-1)*w}px`}} onClick=${()=>r(d)}>
          <span role="gridcell" class="faint number">${d}</span>
          <span role="gridcell" class="faint number">${m?.step?`@${m.step}`:""}</span>
          <span role="gridcell" class="what" style=${{paddingInlineStart:`${(m?.depth??0)*14}px`}}>
            ${m?ae(m):"…"}
          </span>
          <span role="gridcell" class="faint number">${re(m?.duration_us??null)}</span>
        </div>`})}
    </div>
  </div>`}const F=[["step","s","Step"],["next","n","Over"],["finish","f","Out"],["nextnode","m","Node"],["turn","t","Turn"],["next_error","e","Error"],["cont","c","Continue"]],G={step:"reverse_step",next:"reverse_next",finish:"reverse_finish",nextnode:"prevnode",turn:"prevturn",next_error:"prev_error",cont:"reverse_cont"},ue={cont:"continue",reverse_cont:"reverse-continue",next_error:"error next",prev_error:"error prev"};function he({thread:t,go:s}){const[r,e]=y([]),[a,h]=y(""),u=R(null),b=()=>(u.current?.abort(),u.current=null);return A(()=>()=>{b()},[]),c`<form class="row-form" role="search" onSubmit=${async i=>{i.preventDefault(),b(),e([]);const $=i.target.elements.q.value;if(!$)return h("");const g=u.current=new AbortController;let f=0;h("searching …");try{await Q(`/threads/${t}/search`,{q:$},g.signal,v=>{f++,f<=200&&e(M=>[...M,JSON.parse(v)]),f>=200&&g.abort()}),h(K(f,"hit"))}catch(v){g.signal.aborted?h(f>=200?"the first 200 hits":"stopped"):h(v.message)}u.current===g&&(u.current=null)}}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${a==="searching …"&&c`<button type="button" onClick=${b}>Stop</button>`}
      <span role="status" class="faint">${a}</span>
    </form>
    ${r.length>0&&c`<ul class="hits">
      ${r.map(i=>c`<li><button onClick=${()=>s(i.seq)}>${i.line.trim()}</button></li>`)}
    </ul>`}`}function de({thread:t,moments:s,seq:r,go:e}){const[a,h]=y(null),u=s.last.value;A(()=>{const i=new AbortController,$=setTimeout(()=>_(`/threads/${t}/overview`,void 0,i.signal).then(h,()=>null),a?1e3:0);return()=>(clearTimeout($),i.abort())},[t,u]);const b=i=>(i-1)/Math.max(1,u-1)*1e3,k=(i,$,g)=>i.map(f=>`M${b(f).toFixed(1)} ${$}V${g}`).join("");return c`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${a&&c`<path class="begun" d=${k(a.runs,0,24)} /><path class="asked" d=${k(a.interrupts,6,18)} />
        <path class="forked" d=${k(a.forks,0,10)} /><path class="failed" d=${k(a.errors,10,24)} />`}
    </svg>
    <input type="range" min="1" max=${u} value=${r} aria-label="Moment" aria-valuetext=${`Moment ${r} of ${u}`}
      onInput=${i=>e(Number(i.target.value))} />
    ${a&&c`<p class="sr">
      ${[[a.runs,"│","run"],[a.errors,"✕","error"],[a.interrupts,"◆","question"],[a.forks,"↳","fork"]].filter(([i])=>i.length).map(([i,$,g])=>`${$} ${K(i.length,g)}`).join("   ")}
    </p>`}
  </div>`}function pe({thread:t,runs:s,run:r,go:e}){if(s.length<2)return null;const a=s.filter(h=>h!==r);return c`<label>Run <select value=${r?.number} onChange=${h=>e(s.find(u=>u.number===Number(h.target.value)).first)}>
      ${s.map(h=>c`<option value=${h.number}>${h.number}${h.branch?`, branch ${h.branch}`:""}: ${h.stopped_because??h.status}</option>`)}
    </select></label>
    <a href=${`#/compare/${t}/${r?.number}/${t}/${a.at(-1).number}`}>Compare it</a>`}const fe=[["s n f m t e","step, over, out, node, turn, error; with Shift back"],["c C","to the next stop, and back to the one before"],["b","breakpoint at this moment"],["k","prepare a fork from here"],[".","the last moment"],["1 … 9","a tab of the inspector"],["/","search"],[":","a command of the debugger"],["?","these keys"]];function $e(t){return t?.tool?`break tool:${t.tool}`:t?.kind==="hook"?`break hook:${t.name}${t.hook_phase?`.${t.hook_phase}`:""}`:t?.kind==="model"?"break model:request":t?.node?`break ${t.node}`:"break run"}export function Run({thread:t,seq:s}){const r=encodeURIComponent(t),e=J(()=>new Moments(r),[r]),[a,h]=y(null),[u,b]=y(""),[k,i]=y(x.peek()!==null),[$,g]=y(!1),f=e.last.value,v=Math.min(Math.max(s,1),Math.max(f,1)),M=(n,l)=>{history.replaceState(null,"",`#/threads/${encodeURIComponent(n)}/${l}`),dispatchEvent(new HashChangeEvent("hashchange"))},o=n=>M(t,Math.min(Math.max(n,1),e.last.peek()||1)),d=R(v);d.current=v;const m=R(Promise.resolve()),I=n=>{m.current=m.current.then(n).catch(l=>{N.value=l.message})},E=n=>{if(U.peek())return void j(n);I(async()=>{x.peek()||await te({thread:t});const p=(await j(n,d.current))?.session;if(p){if(p.thread_id!==t)return M(p.thread_id,p.seq??1);await e.grow(),p.seq&&p.seq!==d.current&&p.mode!=="REPLAY"&&o(d.current=p.seq)}})},O=n=>{if(x.peek())return E(ue[n]??n.replace("_","-"));I(async()=>{const l=await _(`/threads/${r}/moments/${d.current}/move`,{verb:n});N.value=l.text,l.seq&&o(d.current=l.seq)})};A(()=>{const n=new AbortController;return x.peek()||(N.value=""),T()&&ne(t).then(l=>l&&i(!0)),e.need(Math.max(1,s-20),Math.max(s+40,60)),Promise.all(["","/recording"].map(l=>_(`/threads/${r}${l}`,void 0,n.signal))).then(async([l,p])=>{e.last.value=p.last,h({info:l,recording:p}),l.status==="running"&&e.asked.clear();const H=se("moments",t,p.last,P=>e.take([P],P.seq));n.signal.addEventListener("abort",H)}).catch(l=>n.signal.aborted||b(l.message)),()=>{n.abort(),setTimeout(()=>x.peek()&&!location.hash.startsWith(`#/threads/${encodeURIComponent(x.peek()?.thread_id??"")}`)&&Z())}},[r]),e.changed.value;const S=e.rows.get(v),Y=n=>{if(n.ctrlKey||n.metaKey||n.altKey||n.target.matches("input:not([type=range]), textarea, select"))return;const l=F.find(([,H])=>H===n.key.toLowerCase()),p=document.querySelectorAll(".inspector [role=tab]")[Number(n.key)-1];if(n.key==="/")document.getElementById("q")?.focus();else if(n.key==="?")g(!$);else if(n.key===".")o(f);else if(p instanceof HTMLElement)p.click();else if(l)O(n.key===l[1]?l[0]:G[l[0]]);else if(T())if(n.key==="b")i(!0),E($e(S));else if(n.key==="k")i(!0),E("fork");else if(n.key===":")i(!0),setTimeout(()=>document.getElementById("line")?.focus());else return;else return;n.preventDefault()};if(u)return c`<main><p class="bad" role="alert">${u}</p><p><a href="#/">All threads</a></p></main>`;if(!a)return c`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;const D=a.recording.runs,C=D.find(n=>n.number===S?.run)??D.at(-1),B=x.value?.executes??!1,z={thread:r,seq:v,go:o,row:S,moments:e,node:S?.node??null,does:T()?E:null};return c`<main class=${k?"run with-debugger":"run"} onKeyDown=${Y}>
    <div class="head">
      <h1>${a.info.title||t}</h1>
      <p class="faint line">
        ${[a.info.agent,C&&`run ${C.number} of ${D.length} with ${C.model}, ${C.stopped_because??C.status}`,K(f,"moment"),S?.branch?`branch ${S.branch}`:"",x.value?.mode].filter(n=>n).join(" · ")}
        <${pe} thread=${r} runs=${D} run=${C} go=${o} />
        ${a.info.agent&&c`<a href=${`#/chat/${r}`}>Chat</a>`}
      </p>
      ${a.recording.notes.map(n=>c`<p class="note">${n}</p>`)}
      ${e.failed.value&&c`<p class="bad" role="alert">${e.failed.value}</p>`}
      ${f>1&&c`<${de} thread=${r} moments=${e} seq=${v} go=${o} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${B?"Move; forwards runs the agent":"Move; this runs nothing"}>
        ${F.map(([n,l,p])=>c`<span class="pair">
          <button title=${`Back: ${p.toLowerCase()} (${l.toUpperCase()})`} aria-label=${`Back: ${p.toLowerCase()}`}
            onClick=${()=>O(G[n])}>◀</button>
          <button class=${B&&n!=="next_error"?"runs":""} disabled=${U.value} title=${`${p} (${l})`} onClick=${()=>O(n)}>
            ${B&&n!=="next_error"?`Run: ${p.toLowerCase()}`:p} ▶</button>
        </span>`)}
        ${T()&&c`<button aria-expanded=${k} onClick=${()=>i(!k)}>Debugger</button>`}
        <button aria-expanded=${$} aria-label="Keys" onClick=${()=>g(!$)}>?</button>
      </div>
      ${$&&c`<dl class="keys">${fe.map(([n,l])=>c`<dt><kbd>${n}</kbd></dt><dd>${l}</dd>`)}</dl>`}
      <${he} thread=${r} go=${o} />
      ${e.only.value&&c`<p class="line row-form">Only <b>${e.only.value}</b>
        <button onClick=${()=>e.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${N.value}</p>
      ${f?c`<${ce} moments=${e} seq=${v} go=${o} />`:c`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${f>0&&c`<${X} ...${z} />`}
    ${k&&c`<${ee} does=${E} />`}
  </main>`}
