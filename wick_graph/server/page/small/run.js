/*8f35755ebf8a54ab*/
import{html as i,signal as L,useEffect as R,useLayoutEffect as W,useMemo as X,useRef as A,useState as y}from"./vendor/preact.js";import{ask as _,goTo as Z,isFile as j,lines as ee,save as te}from"./api.js";import{Inspector as ne}from"./inspector.js";import{close as se,Debugger as re,mayDebug as N,open as oe,resume as ae,running as K,said as T,say as F,session as x}from"./session.js";import{follow as ie}from"./stream.js";import{counted as P,took as le}from"./values.js";const E=200,w=28,V=8;export class Moments{constructor(s){this.thread=s,this.rows=new Map,this.asked=new Set,this.last=L(0),this.before=0,this.changed=L(0),this.failed=L(""),this.only=L(""),this.found=[],this.isWhole=!1}get count(){return this.only.value?this.found.length:this.last.value-this.before}seq(s){return this.only.value?this.found[s]:s+1+this.before}place(s){if(!this.only.value)return s-1-this.before;const o=this.found.findIndex(e=>e>=s);return o<0?this.found.length-1:o}filter(s){this.only.value=s,this.found=[],this.isWhole=!1,s&&this.more(),this.changed.value++}async more(){const s=this.only.value;if(this.isWhole)return;this.isWhole=!0;const o={after:this.found.at(-1)??0,limit:E,node:s},e=await _(`/threads/${this.thread}/moments`,o);s===this.only.value&&(this.isWhole=e.moments.length<E,this.found=[...this.found,...e.moments.map(r=>r.seq)],this.take(e.moments,e.last))}need(s,o){if(this.only.value){o>=this.found.length&&this.more();return}for(let e=Math.floor((s-1+this.before)/E);e*E<o+this.before;e++)e<0||this.asked.has(e)||(this.asked.add(e),_(`/threads/${this.thread}/moments`,{after:e*E,limit:E}).then(r=>this.take(r.moments,r.last),r=>(this.asked.delete(e),this.failed.value=r.message)))}async grow(){for(;;){const s=await _(`/threads/${this.thread}/moments`,{after:this.last.peek(),limit:500});if(this.take(s.moments,s.last),s.moments.length<500)return}}take(s,o){for(const e of s)this.rows.set(e.seq,e);this.last.value=Math.max(this.last.value,o),this.changed.value++}}function ce(n){if(n.kind==="gap")return n.error??"not readable";const s=n.status!=="ok"&&!n.is_left?"✕":ue.has(n.phase)?"→":he.has(n.phase)?"←":"·",o=n.name===n.kind?"":n.name;return[s,n.kind,n.hook_phase,o,de.has(n.phase)?"":n.phase,n.error].filter(e=>e).join(" ")}const ue=new Set(["enter","request","call"]),he=new Set(["exit","response","error"]),de=new Set(["enter","exit","taken"]);function fe({moments:n,seq:s,go:o}){const e=A(null),[r,h]=y({top:0,height:600}),c=n.count,m=n.place(s);n.changed.value;const v=()=>{const a=e.current;a&&h({top:a.scrollTop,height:a.clientHeight})},$=A(m);$.current=m;const u=()=>{const a=e.current;if(!a)return;const p=$.current*w;p<a.scrollTop?a.scrollTop=p:p+w>a.scrollTop+a.clientHeight&&(a.scrollTop=p+w-a.clientHeight),v()};W(()=>{const a=new ResizeObserver(u);return e.current&&a.observe(e.current),()=>a.disconnect()},[]),W(u,[m,c]);const b=Math.max(1,Math.floor(r.top/w)+1-V),f=Math.min(c,Math.ceil((r.top+r.height)/w)+V);R(()=>n.need(b,f),[b,f,c,n.only.value]),R(()=>e.current?.focus({preventScroll:!0}),[]);const k=[];for(let a=b;a<=f;a++)k.push(a);const M=a=>{const p=Math.max(1,Math.floor(r.height/w)-1),g={ArrowDown:m+1,ArrowUp:m-1,PageDown:m+p,PageUp:m-p,Home:0,End:c-1}[a.key];g!==void 0&&(a.preventDefault(),o(n.seq(Math.min(Math.max(g,0),c-1))))};return i`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${c} tabindex="0"
    aria-activedescendant=${`m${s}`} ref=${e} onScroll=${v} onKeyDown=${M}>
    <div role="rowgroup" style=${{height:`${c*w}px`}}>
      ${k.map(a=>{const p=n.seq(a-1),g=n.rows.get(p),I=g?`k-${g.kind}${g.status==="ok"||g.is_left?"":" bad"}`:"";return i`<div role="row" key=${p} id=${`m${p}`} aria-rowindex=${a} aria-selected=${p===s}
          class=${`step ${I}`} style=${{top:`${(a-1)*w}px`}} onClick=${()=>o(p)}>
          <span role="gridcell" class="faint number">${p}</span>
          <span role="gridcell" class="faint number">${g?.step?`@${g.step}`:""}</span>
          <span role="gridcell" class="what" style=${{paddingInlineStart:`${(g?.depth??0)*14}px`}}>
            ${g?ce(g):"…"}
          </span>
          <span role="gridcell" class="faint number">${le(g?.duration_us??null)}</span>
        </div>`})}
    </div>
  </div>`}const G=[["step","s","Step"],["next","n","Over"],["finish","f","Out"],["nextnode","m","Node"],["turn","t","Turn"],["next_error","e","Error"],["cont","c","Continue"]],Y={step:"reverse_step",next:"reverse_next",finish:"reverse_finish",nextnode:"prevnode",turn:"prevturn",next_error:"prev_error",cont:"reverse_cont"},pe={cont:"continue",reverse_cont:"reverse-continue",next_error:"error next",prev_error:"error prev"};function $e({thread:n,go:s}){const[o,e]=y([]),[r,h]=y(""),c=A(null),m=()=>(c.current?.abort(),c.current=null);return R(()=>()=>{m()},[]),i`<form class="row-form" role="search" onSubmit=${async $=>{$.preventDefault(),m(),e([]);const u=$.target.elements.q.value;if(!u)return h("");const b=c.current=new AbortController;let f=0;h("searching …");try{await ee(`/threads/${n}/search`,{q:u},b.signal,k=>{f++,f<=200&&e(M=>[...M,JSON.parse(k)]),f>=200&&b.abort()}),h(P(f,"hit"))}catch(k){b.signal.aborted?h(f>=200?"the first 200 hits":"stopped"):h(k.message)}c.current===b&&(c.current=null)}}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${r==="searching …"&&i`<button type="button" onClick=${m}>Stop</button>`}
      <span role="status" class="faint">${r}</span>
    </form>
    ${o.length>0&&i`<ul class="hits">
      ${o.map($=>i`<li><button onClick=${()=>s($.seq)}>${$.line.trim()}</button></li>`)}
    </ul>`}`}function me({thread:n,moments:s,seq:o,go:e}){const[r,h]=y(null),c=s.last.value;R(()=>{const u=new AbortController,b=setTimeout(()=>_(`/threads/${n}/overview`,void 0,u.signal).then(h,()=>null),r?1e3:0);return()=>(clearTimeout(b),u.abort())},[n,c]);const m=s.before+1,v=u=>(u-m)/Math.max(1,c-m)*1e3,$=(u,b,f)=>u.map(k=>`M${v(k).toFixed(1)} ${b}V${f}`).join("");return i`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${r&&i`<path class="begun" d=${$(r.runs,0,24)} /><path class="asked" d=${$(r.interrupts,6,18)} />
        <path class="forked" d=${$(r.forks,0,10)} /><path class="failed" d=${$(r.errors,10,24)} />`}
    </svg>
    <input type="range" min=${m} max=${c} value=${o} aria-label="Moment" aria-valuetext=${`Moment ${o} of ${c}`}
      onInput=${u=>e(Number(u.target.value))} />
    ${r&&i`<p class="sr">
      ${[[r.runs,"│","run"],[r.errors,"✕","error"],[r.interrupts,"◆","question"],[r.forks,"↳","fork"]].filter(([u])=>u.length).map(([u,b,f])=>`${b} ${P(u.length,f)}`).join("   ")}
    </p>`}
  </div>`}function be({thread:n,runs:s,run:o,go:e}){if(s.length<2)return null;const r=s.filter(h=>h!==o);return i`<label>Run <select value=${o?.number} onChange=${h=>e(s.find(c=>c.number===Number(h.target.value)).first)}>
      ${s.map(h=>i`<option value=${h.number}>${h.number}${h.branch?`, branch ${h.branch}`:""}: ${h.stopped_because??h.status}</option>`)}
    </select></label>
    ${!j&&i`<a href=${`#/compare/${n}/${o?.number}/${n}/${r.at(-1).number}`}>Compare it</a>`}`}const ge=[["s n f m t e","step, over, out, node, turn, error; with Shift back"],["c C","to the next stop, and back to the one before"],["b","breakpoint at this moment"],["k r","prepare a fork from here, with a list of what it would run"],["p","pause a run"],["y","why: the first change"],["d","differences up to another moment"],["x","compare with another run"],[".","the last moment"],["1 … 9","a tab of the inspector"],["/","search"],[":","a command of the debugger"],["?","these keys"]],z={y:".change [aria-expanded]",d:"#to",x:".head a[href*=compare]"};function ke(n){return n?.tool?`break tool:${n.tool}`:n?.kind==="hook"?`break hook:${n.name}${n.hook_phase?`.${n.hook_phase}`:""}`:n?.kind==="model"?"break model:request":n?.node?`break ${n.node}`:"break run"}export function Run({thread:n,seq:s}){const o=encodeURIComponent(n),e=X(()=>new Moments(o),[o]),[r,h]=y(null),[c,m]=y(""),[v,$]=y(x.peek()!==null),[u,b]=y(!1),f=e.last.value,k=Math.min(Math.max(s,e.before+1),Math.max(f,1)),M=(t,l)=>{Z(`#/threads/${encodeURIComponent(t)}`,l)},a=t=>M(n,Math.min(Math.max(t,e.before+1),e.last.peek()||1)),p=A(k);p.current=k;const g=A(Promise.resolve()),I=t=>{g.current=g.current.then(t).catch(l=>{T.value=l.message})},S=t=>{if(K.peek())return void F(t);I(async()=>{x.peek()||await oe({thread:n});const d=(await F(t,p.current))?.session;if(d){if(d.thread_id!==n)return M(d.thread_id,d.seq??1);await e.grow(),d.seq&&d.seq!==p.current&&d.mode!=="REPLAY"&&a(p.current=d.seq)}})},O=t=>{if(x.peek())return S(pe[t]??t.replace("_","-"));I(async()=>{const l=await _(`/threads/${o}/moments/${p.current}/move`,{verb:t});T.value=l.text,l.seq&&a(p.current=l.seq)})};R(()=>{const t=new AbortController;return x.peek()||(T.value=""),N()&&ae(n).then(l=>l&&$(!0)),e.need(Math.max(1,s-20),Math.max(s+40,60)),Promise.all(["","/recording"].map(l=>_(`/threads/${o}${l}`,void 0,t.signal))).then(async([l,d])=>{e.before=(d.first??1)-1,e.last.value=d.last,h({info:l,recording:d}),l.status==="running"&&e.asked.clear();const H=ie("moments",n,d.last,U=>e.take([U],U.seq));t.signal.addEventListener("abort",H)}).catch(l=>t.signal.aborted||m(l.message)),()=>{t.abort(),setTimeout(()=>x.peek()&&!location.hash.startsWith(`#/threads/${encodeURIComponent(x.peek()?.thread_id??"")}`)&&se())}},[o]),e.changed.value;const C=e.rows.get(k),J=t=>{if(t.ctrlKey||t.metaKey||t.altKey||t.target.matches("input:not([type=range]), textarea, select"))return;const l=G.find(([,H])=>H===t.key.toLowerCase()),d=document.querySelectorAll(".inspector [role=tab]")[Number(t.key)-1];if(t.key==="/")document.getElementById("q")?.focus();else if(t.key==="?")b(!u);else if(t.key===".")a(f);else if(t.key in z)document.querySelector(z[t.key])?.[t.key==="d"?"focus":"click"]();else if(t.key==="p")K.peek()&&S("pause");else if(d instanceof HTMLElement)d.click();else if(l)O(t.key===l[1]?l[0]:Y[l[0]]);else if(N())if(t.key==="b")$(!0),S(ke(C));else if(t.key==="k"||t.key==="r")$(!0),S("fork");else if(t.key===":")$(!0),setTimeout(()=>document.getElementById("line")?.focus());else return;else return;t.preventDefault()};if(c)return i`<main><p class="bad" role="alert">${c}</p><p><a href="#/">All threads</a></p></main>`;if(!r)return i`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;const D=r.recording.runs,q=D.find(t=>t.number===C?.run)??D.at(-1),B=x.value?.executes??!1,Q={thread:o,seq:k,go:a,row:C,moments:e,node:C?.node??null,does:N()?S:null};return i`<main class=${v?"run with-debugger":"run"} onKeyDown=${J}>
    <div class="head">
      <h1>${r.info.title||n}</h1>
      <p class="faint line">
        ${[r.info.agent,q&&`run ${q.number} of ${D.length} with ${q.model}, ${q.stopped_because??q.status}`,P(f,"moment"),C?.branch?`branch ${C.branch}`:"",x.value?.mode].filter(t=>t).join(" · ")}
        <${be} thread=${o} runs=${D} run=${q} go=${a} />
        ${r.info.agent&&i`<a href=${`#/chat/${o}`}>Chat</a>`}
        ${!j&&f>0&&i`<button class="quiet" title="One file that shows this recording offline; secrets are hidden"
          onClick=${()=>te(`/threads/${o}/export`,`${n}.html`).catch(t=>{T.value=t.message})}>Export</button>`}
        ${(r.info.above||r.info.parent)&&i`<a href=${r.info.above??`#/threads/${encodeURIComponent(r.info.parent)}`}>The run that made this thread</a>`}
      </p>
      ${r.recording.notes.map(t=>i`<p class="note">${t}</p>`)}
      ${e.failed.value&&i`<p class="bad" role="alert">${e.failed.value}</p>`}
      ${f>1&&i`<${me} thread=${o} moments=${e} seq=${k} go=${a} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${B?"Move; forwards runs the agent":"Move; this runs nothing"}>
        ${G.map(([t,l,d])=>i`<span class="pair">
          <button title=${`Back: ${d.toLowerCase()} (${l.toUpperCase()})`} aria-label=${`Back: ${d.toLowerCase()}`}
            onClick=${()=>O(Y[t])}>◀</button>
          <button class=${B&&t!=="next_error"?"runs":""} disabled=${K.value} title=${`${d} (${l})`} onClick=${()=>O(t)}>
            ${B&&t!=="next_error"?`Run: ${d.toLowerCase()}`:d} ▶</button>
        </span>`)}
        ${N()&&i`<button aria-expanded=${v} onClick=${()=>$(!v)}>Debugger</button>`}
        <button aria-expanded=${u} aria-label="Keys" onClick=${()=>b(!u)}>?</button>
      </div>
      ${u&&i`<dl class="keys">${ge.map(([t,l])=>i`<dt><kbd>${t}</kbd></dt><dd>${l}</dd>`)}</dl>`}
      <${$e} thread=${o} go=${a} />
      ${e.only.value&&i`<p class="line row-form">Only <b>${e.only.value}</b>
        <button onClick=${()=>e.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${T.value}</p>
      ${f?i`<${fe} moments=${e} seq=${k} go=${a} />`:i`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${f>0&&i`<${ne} ...${Q} />`}
    ${v&&i`<${re} does=${S} />`}
  </main>`}
