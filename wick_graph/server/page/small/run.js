/*fb72529ab19b72b4*/
import{html as i,signal as D,useEffect as R,useLayoutEffect as W,useMemo as Q,useRef as A,useState as v}from"./vendor/preact.js";import{ask as q,goTo as X,isFile as Z,lines as ee}from"./api.js";import{Inspector as te}from"./inspector.js";import{close as ne,Debugger as se,mayDebug as L,open as re,resume as oe,running as K,said as N,say as j,session as x}from"./session.js";import{follow as ae}from"./stream.js";import{counted as P,took as ie}from"./values.js";const E=200,w=28,F=8;export class Moments{constructor(s){this.thread=s,this.rows=new Map,this.asked=new Set,this.last=D(0),this.before=0,this.changed=D(0),this.failed=D(""),this.only=D(""),this.found=[],this.isWhole=!1}get count(){return this.only.value?this.found.length:this.last.value-this.before}seq(s){return this.only.value?this.found[s]:s+1+this.before}place(s){if(!this.only.value)return s-1-this.before;const o=this.found.findIndex(e=>e>=s);return o<0?this.found.length-1:o}filter(s){this.only.value=s,this.found=[],this.isWhole=!1,s&&this.more(),this.changed.value++}async more(){const s=this.only.value;if(this.isWhole)return;this.isWhole=!0;const o={after:this.found.at(-1)??0,limit:E,node:s},e=await q(`/threads/${this.thread}/moments`,o);s===this.only.value&&(this.isWhole=e.moments.length<E,this.found=[...this.found,...e.moments.map(r=>r.seq)],this.take(e.moments,e.last))}need(s,o){if(this.only.value){o>=this.found.length&&this.more();return}for(let e=Math.floor((s-1+this.before)/E);e*E<o+this.before;e++)e<0||this.asked.has(e)||(this.asked.add(e),q(`/threads/${this.thread}/moments`,{after:e*E,limit:E}).then(r=>this.take(r.moments,r.last),r=>(this.asked.delete(e),this.failed.value=r.message)))}async grow(){for(;;){const s=await q(`/threads/${this.thread}/moments`,{after:this.last.peek(),limit:500});if(this.take(s.moments,s.last),s.moments.length<500)return}}take(s,o){for(const e of s)this.rows.set(e.seq,e);this.last.value=Math.max(this.last.value,o),this.changed.value++}}function le(t){if(t.kind==="gap")return t.error??"not readable";const s=t.status!=="ok"&&!t.is_left?"✕":ce.has(t.phase)?"→":ue.has(t.phase)?"←":"·",o=t.name===t.kind?"":t.name;return[s,t.kind,t.hook_phase,o,he.has(t.phase)?"":t.phase,t.error].filter(e=>e).join(" ")}const ce=new Set(["enter","request","call"]),ue=new Set(["exit","response","error"]),he=new Set(["enter","exit","taken"]);function de({moments:t,seq:s,go:o}){const e=A(null),[r,h]=v({top:0,height:600}),c=t.count,m=t.place(s);t.changed.value;const y=()=>{const a=e.current;a&&h({top:a.scrollTop,height:a.clientHeight})},$=A(m);$.current=m;const u=()=>{const a=e.current;if(!a)return;const f=$.current*w;f<a.scrollTop?a.scrollTop=f:f+w>a.scrollTop+a.clientHeight&&(a.scrollTop=f+w-a.clientHeight),y()};W(()=>{const a=new ResizeObserver(u);return e.current&&a.observe(e.current),()=>a.disconnect()},[]),W(u,[m,c]);const b=Math.max(1,Math.floor(r.top/w)+1-F),p=Math.min(c,Math.ceil((r.top+r.height)/w)+F);R(()=>t.need(b,p),[b,p,c,t.only.value]),R(()=>e.current?.focus({preventScroll:!0}),[]);const k=[];for(let a=b;a<=p;a++)k.push(a);const M=a=>{const f=Math.max(1,Math.floor(r.height/w)-1),g={ArrowDown:m+1,ArrowUp:m-1,PageDown:m+f,PageUp:m-f,Home:0,End:c-1}[a.key];g!==void 0&&(a.preventDefault(),o(t.seq(Math.min(Math.max(g,0),c-1))))};return i`<div class="steps" role="grid" aria-label="Moments" aria-rowcount=${c} tabindex="0"
    aria-activedescendant=${`m${s}`} ref=${e} onScroll=${y} onKeyDown=${M}>
    <div role="rowgroup" style=${{height:`${c*w}px`}}>
      ${k.map(a=>{const f=t.seq(a-1),g=t.rows.get(f),T=g?`k-${g.kind}${g.status==="ok"||g.is_left?"":" bad"}`:"";return i`<div role="row" key=${f} id=${`m${f}`} aria-rowindex=${a} aria-selected=${f===s}
          class=${`step ${T}`} style=${{top:`${(a-1)*w}px`}} onClick=${()=>o(f)}>
          <span role="gridcell" class="faint number">${f}</span>
          <span role="gridcell" class="faint number">${g?.step?`@${g.step}`:""}</span>
          <span role="gridcell" class="what" style=${{paddingInlineStart:`${(g?.depth??0)*14}px`}}>
            ${g?le(g):"…"}
          </span>
          <span role="gridcell" class="faint number">${ie(g?.duration_us??null)}</span>
        </div>`})}
    </div>
  </div>`}const V=[["step","s","Step"],["next","n","Over"],["finish","f","Out"],["nextnode","m","Node"],["turn","t","Turn"],["next_error","e","Error"],["cont","c","Continue"]],G={step:"reverse_step",next:"reverse_next",finish:"reverse_finish",nextnode:"prevnode",turn:"prevturn",next_error:"prev_error",cont:"reverse_cont"},fe={cont:"continue",reverse_cont:"reverse-continue",next_error:"error next",prev_error:"error prev"};function pe({thread:t,go:s}){const[o,e]=v([]),[r,h]=v(""),c=A(null),m=()=>(c.current?.abort(),c.current=null);return R(()=>()=>{m()},[]),i`<form class="row-form" role="search" onSubmit=${async $=>{$.preventDefault(),m(),e([]);const u=$.target.elements.q.value;if(!u)return h("");const b=c.current=new AbortController;let p=0;h("searching …");try{await ee(`/threads/${t}/search`,{q:u},b.signal,k=>{p++,p<=200&&e(M=>[...M,JSON.parse(k)]),p>=200&&b.abort()}),h(P(p,"hit"))}catch(k){b.signal.aborted?h(p>=200?"the first 200 hits":"stopped"):h(k.message)}c.current===b&&(c.current=null)}}>
      <label for="q">Search</label><input id="q" name="q" type="search" autocomplete="off" />
      <button>Search</button>
      ${r==="searching …"&&i`<button type="button" onClick=${m}>Stop</button>`}
      <span role="status" class="faint">${r}</span>
    </form>
    ${o.length>0&&i`<ul class="hits">
      ${o.map($=>i`<li><button onClick=${()=>s($.seq)}>${$.line.trim()}</button></li>`)}
    </ul>`}`}function $e({thread:t,moments:s,seq:o,go:e}){const[r,h]=v(null),c=s.last.value;R(()=>{const u=new AbortController,b=setTimeout(()=>q(`/threads/${t}/overview`,void 0,u.signal).then(h,()=>null),r?1e3:0);return()=>(clearTimeout(b),u.abort())},[t,c]);const m=s.before+1,y=u=>(u-m)/Math.max(1,c-m)*1e3,$=(u,b,p)=>u.map(k=>`M${y(k).toFixed(1)} ${b}V${p}`).join("");return i`<div class="strip">
    <svg viewBox="0 0 1000 24" preserveAspectRatio="none" aria-hidden="true">
      ${r&&i`<path class="begun" d=${$(r.runs,0,24)} /><path class="asked" d=${$(r.interrupts,6,18)} />
        <path class="forked" d=${$(r.forks,0,10)} /><path class="failed" d=${$(r.errors,10,24)} />`}
    </svg>
    <input type="range" min=${m} max=${c} value=${o} aria-label="Moment" aria-valuetext=${`Moment ${o} of ${c}`}
      onInput=${u=>e(Number(u.target.value))} />
    ${r&&i`<p class="sr">
      ${[[r.runs,"│","run"],[r.errors,"✕","error"],[r.interrupts,"◆","question"],[r.forks,"↳","fork"]].filter(([u])=>u.length).map(([u,b,p])=>`${b} ${P(u.length,p)}`).join("   ")}
    </p>`}
  </div>`}function me({thread:t,runs:s,run:o,go:e}){if(s.length<2)return null;const r=s.filter(h=>h!==o);return i`<label>Run <select value=${o?.number} onChange=${h=>e(s.find(c=>c.number===Number(h.target.value)).first)}>
      ${s.map(h=>i`<option value=${h.number}>${h.number}${h.branch?`, branch ${h.branch}`:""}: ${h.stopped_because??h.status}</option>`)}
    </select></label>
    ${!Z&&i`<a href=${`#/compare/${t}/${o?.number}/${t}/${r.at(-1).number}`}>Compare it</a>`}`}const be=[["s n f m t e","step, over, out, node, turn, error; with Shift back"],["c C","to the next stop, and back to the one before"],["b","breakpoint at this moment"],["k r","prepare a fork from here, with a list of what it would run"],["p","pause a run"],["y","why: the first change"],["d","differences up to another moment"],["x","compare with another run"],[".","the last moment"],["1 … 9","a tab of the inspector"],["/","search"],[":","a command of the debugger"],["?","these keys"]],Y={y:".change [aria-expanded]",d:"#to",x:".head a[href*=compare]"};function ge(t){return t?.tool?`break tool:${t.tool}`:t?.kind==="hook"?`break hook:${t.name}${t.hook_phase?`.${t.hook_phase}`:""}`:t?.kind==="model"?"break model:request":t?.node?`break ${t.node}`:"break run"}export function Run({thread:t,seq:s}){const o=encodeURIComponent(t),e=Q(()=>new Moments(o),[o]),[r,h]=v(null),[c,m]=v(""),[y,$]=v(x.peek()!==null),[u,b]=v(!1),p=e.last.value,k=Math.min(Math.max(s,e.before+1),Math.max(p,1)),M=(n,l)=>{X(`#/threads/${encodeURIComponent(n)}`,l)},a=n=>M(t,Math.min(Math.max(n,e.before+1),e.last.peek()||1)),f=A(k);f.current=k;const g=A(Promise.resolve()),T=n=>{g.current=g.current.then(n).catch(l=>{N.value=l.message})},S=n=>{if(K.peek())return void j(n);T(async()=>{x.peek()||await re({thread:t});const d=(await j(n,f.current))?.session;if(d){if(d.thread_id!==t)return M(d.thread_id,d.seq??1);await e.grow(),d.seq&&d.seq!==f.current&&d.mode!=="REPLAY"&&a(f.current=d.seq)}})},O=n=>{if(x.peek())return S(fe[n]??n.replace("_","-"));T(async()=>{const l=await q(`/threads/${o}/moments/${f.current}/move`,{verb:n});N.value=l.text,l.seq&&a(f.current=l.seq)})};R(()=>{const n=new AbortController;return x.peek()||(N.value=""),L()&&oe(t).then(l=>l&&$(!0)),e.need(Math.max(1,s-20),Math.max(s+40,60)),Promise.all(["","/recording"].map(l=>q(`/threads/${o}${l}`,void 0,n.signal))).then(async([l,d])=>{e.before=(d.first??1)-1,e.last.value=d.last,h({info:l,recording:d}),l.status==="running"&&e.asked.clear();const H=ae("moments",t,d.last,U=>e.take([U],U.seq));n.signal.addEventListener("abort",H)}).catch(l=>n.signal.aborted||m(l.message)),()=>{n.abort(),setTimeout(()=>x.peek()&&!location.hash.startsWith(`#/threads/${encodeURIComponent(x.peek()?.thread_id??"")}`)&&ne())}},[o]),e.changed.value;const C=e.rows.get(k),z=n=>{if(n.ctrlKey||n.metaKey||n.altKey||n.target.matches("input:not([type=range]), textarea, select"))return;const l=V.find(([,H])=>H===n.key.toLowerCase()),d=document.querySelectorAll(".inspector [role=tab]")[Number(n.key)-1];if(n.key==="/")document.getElementById("q")?.focus();else if(n.key==="?")b(!u);else if(n.key===".")a(p);else if(n.key in Y)document.querySelector(Y[n.key])?.[n.key==="d"?"focus":"click"]();else if(n.key==="p")K.peek()&&S("pause");else if(d instanceof HTMLElement)d.click();else if(l)O(n.key===l[1]?l[0]:G[l[0]]);else if(L())if(n.key==="b")$(!0),S(ge(C));else if(n.key==="k"||n.key==="r")$(!0),S("fork");else if(n.key===":")$(!0),setTimeout(()=>document.getElementById("line")?.focus());else return;else return;n.preventDefault()};if(c)return i`<main><p class="bad" role="alert">${c}</p><p><a href="#/">All threads</a></p></main>`;if(!r)return i`<main aria-busy="true"><p class="faint">Loading the recording …</p></main>`;const I=r.recording.runs,_=I.find(n=>n.number===C?.run)??I.at(-1),B=x.value?.executes??!1,J={thread:o,seq:k,go:a,row:C,moments:e,node:C?.node??null,does:L()?S:null};return i`<main class=${y?"run with-debugger":"run"} onKeyDown=${z}>
    <div class="head">
      <h1>${r.info.title||t}</h1>
      <p class="faint line">
        ${[r.info.agent,_&&`run ${_.number} of ${I.length} with ${_.model}, ${_.stopped_because??_.status}`,P(p,"moment"),C?.branch?`branch ${C.branch}`:"",x.value?.mode].filter(n=>n).join(" · ")}
        <${me} thread=${o} runs=${I} run=${_} go=${a} />
        ${r.info.agent&&i`<a href=${`#/chat/${o}`}>Chat</a>`}
        ${(r.info.above||r.info.parent)&&i`<a href=${r.info.above??`#/threads/${encodeURIComponent(r.info.parent)}`}>The run that made this thread</a>`}
      </p>
      ${r.recording.notes.map(n=>i`<p class="note">${n}</p>`)}
      ${e.failed.value&&i`<p class="bad" role="alert">${e.failed.value}</p>`}
      ${p>1&&i`<${$e} thread=${o} moments=${e} seq=${k} go=${a} />`}
    </div>
    <section class="left" aria-label="Steps">
      <div class="verbs" role="group" aria-label=${B?"Move; forwards runs the agent":"Move; this runs nothing"}>
        ${V.map(([n,l,d])=>i`<span class="pair">
          <button title=${`Back: ${d.toLowerCase()} (${l.toUpperCase()})`} aria-label=${`Back: ${d.toLowerCase()}`}
            onClick=${()=>O(G[n])}>◀</button>
          <button class=${B&&n!=="next_error"?"runs":""} disabled=${K.value} title=${`${d} (${l})`} onClick=${()=>O(n)}>
            ${B&&n!=="next_error"?`Run: ${d.toLowerCase()}`:d} ▶</button>
        </span>`)}
        ${L()&&i`<button aria-expanded=${y} onClick=${()=>$(!y)}>Debugger</button>`}
        <button aria-expanded=${u} aria-label="Keys" onClick=${()=>b(!u)}>?</button>
      </div>
      ${u&&i`<dl class="keys">${be.map(([n,l])=>i`<dt><kbd>${n}</kbd></dt><dd>${l}</dd>`)}</dl>`}
      <${pe} thread=${o} go=${a} />
      ${e.only.value&&i`<p class="line row-form">Only <b>${e.only.value}</b>
        <button onClick=${()=>e.filter("")}>Show all</button></p>`}
      <p role="status" class="said">${N.value}</p>
      ${p?i`<${de} moments=${e} seq=${k} go=${a} />`:i`<p class="row-form">Nothing is recorded in this thread.</p>`}
    </section>
    ${p>0&&i`<${te} ...${J} />`}
    ${y&&i`<${se} does=${S} />`}
  </main>`}
