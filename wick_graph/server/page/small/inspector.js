/*31133c92af7d8543*/
import{html as e,useEffect as q,useState as h}from"./vendor/preact.js";import{ask as x,isFile as p,lacks as C,tabOf as g}from"./api.js";import{Graph as T}from"./graph.js";import{Lanes as S}from"./lanes.js";import{counted as y,Value as u}from"./values.js";const O=120;function c(t,n,o,a){const l=`${t} ${n} ${o} ${JSON.stringify(a)}`,[s,$]=h({key:""});return q(()=>{const i=new AbortController,b=setTimeout(()=>{x(`/threads/${t}/moments/${n}${o}`,a,i.signal).then(d=>$({key:l,answer:d}),d=>i.signal.aborted||$({key:l,error:d.message}))},s.key?O:0);return()=>(clearTimeout(b),i.abort())},[l]),{...s,isOld:s.key!==l}}function r(t,n){return t.isOld&&!t.answer?e`<p class="faint" aria-busy="true">Loading …</p>`:t.error?e`<p class="bad" role="alert">${t.error}</p>`:e`<div aria-busy=${t.isOld}>${n(t.answer)}</div>`}function k({thread:t,seq:n,go:o,path:a}){const l=c(t,n,"/why",{path:a});return r(l,s=>e`<ol class="why" aria-label=${`Why ${a}`}>
    ${s.causes.map($=>e`<li>
        ${$.text} ${$.thread_id?e`<a href=${`#/threads/${encodeURIComponent($.thread_id)}/${$.seq}`}>Go to ${$.thread_id}</a>`:e`<button onClick=${()=>o($.seq)}>Go to ${$.seq}</button>`}
      </li>`)}
  </ol>`)}function R({thread:t,at:n,go:o,node:a,change:l}){const[s,$]=h(!1);return e`<li class=${`change ${l.op}`}>
    <p class="line">
      <b>${{add:"+ added",remove:"− removed",change:"~ changed"}[l.op]}</b>
      <code>${l.path}</code>
      ${l.op!=="remove"&&!p&&e`<button aria-expanded=${s} onClick=${()=>$(!s)}>Why?</button>`}
    </p>
    ${l.op!=="add"&&e`<div class="before"><${u} thread=${t} value=${l.before} /></div>`}
    ${l.op!=="remove"&&e`<div class="after"><${u} thread=${t} value=${l.after} /></div>`}
    ${s&&e`<${k} thread=${t} seq=${n} go=${o} node=${a} path=${l.path} />`}
  </li>`}function A(t){const[n,o]=h(0),a=c(t.thread,t.seq,"/diff",n?{to:n}:void 0),l=c(t.thread,t.seq,"/writes");return e`<form class="row-form" onSubmit=${s=>(s.preventDefault(),o(Number(s.target.elements.to.value)))}>
      <label for="to">Up to moment</label><input id="to" name="to" type="number" min="1" placeholder="the end of this step" /><button>Show</button>
    </form>
    ${r(a,s=>s.changes.length?e`<ul class="changes">
            ${s.changes.map($=>e`<${R} key=${`${t.seq} ${$.path}`} ...${t} change=${$} at=${s.at} />`)}
          </ul>`:e`<p>${n?"Nothing is different there.":"This step changed nothing."}</p>`)}
    ${!l.error&&l.answer?.writes.length>0&&e`<h2>Written in this step, not yet in the state</h2>
        ${l.answer.writes.map(s=>e`<p><code>${s.channel}</code> by ${s.node}</p>
            <${u} thread=${t.thread} value=${s.value} />`)}`}`}function P(t){const[n,o]=h(""),[a,l]=h(""),[s,$]=h(0),i=c(t.thread,t.seq,"/state",{path:n,offset:s});return e`<form class="row-form" onSubmit=${d=>(d.preventDefault(),$(0),o(a.trim()))}>
      <label for="path">Path</label>
      <input id="path" value=${a} placeholder="messages[-1].content" autocomplete="off"
        onInput=${d=>l(d.target.value)} />
      <button>Show</button>
    </form>
    ${r(i,d=>e`
      ${d.total!==null&&d.total>100&&e`<p class="line faint">
          ${d.offset+1} to ${Math.min(d.offset+100,d.total)} of ${y(d.total,"item")}
          <button disabled=${!s} onClick=${()=>$(Math.max(0,s-100))}>Earlier</button>
          <button disabled=${s+100>=d.total} onClick=${()=>$(s+100)}>Later</button>
        </p>`}
      <${u} thread=${t.thread} value=${d.value} />
      ${d.path&&!p&&e`<h2>Why</h2><${k} ...${t} path=${d.path} />`}`)}`}function _({thread:t,go:n,part:o}){const a={kept:"from",added:"added by",dropped:"dropped by"}[o.op];return e`<li class=${o.op}>
    <p class="line">
      <b>${o.part==="setting"?o.name:o.part}</b>
      <span class="source">${a??o.op} ${o.by}</span>
      ${o.seq!==null&&e`<button onClick=${()=>n(o.seq)}>Go to ${o.seq}</button>`}
    </p>
    <${u} thread=${t} value=${o.value} />
  </li>`}const m=50;function E(t){const[n,o]=h(-1),a=c(t.thread,t.seq,"/request"),l=n<0?{limit:m}:{limit:m,offset:n},s=c(t.thread,t.seq,"/blame",l),$={at:"of this moment",before:"the last before this moment",after:"the next after this moment"};return a.error?e`<p class="bad" role="alert">${a.error}</p>`:e`${r(a,i=>e`<h2>Request ${$[i.when]}</h2>
      <p>
        ${i.model} · ${i.purpose} · ${y(i.messages,"message")} · moment ${i.seq} ·
        ${" "}${i.exact?"exactly what was sent":i.note}
      </p>`)}
    ${r(s,i=>e`<p class="line faint">
        Parts ${i.offset+1} to ${i.offset+i.parts.length} of ${i.total}
        <button disabled=${!i.offset} onClick=${()=>o(Math.max(0,i.offset-m))}>Earlier</button>
        <button disabled=${i.offset+i.parts.length>=i.total}
          onClick=${()=>o(i.offset+m)}>Later</button>
      </p>
      <ol class="parts">
        ${i.parts.map(b=>e`<${_} ...${t} part=${b} />`)}
      </ol>`)}`}function G(t){const n=c(t.thread,t.seq,""),o=t.row?.kind==="agent"&&n.answer?.facts.thread,a=p?n.answer?.below:typeof o=="string"&&`#/threads/${encodeURIComponent(o)}`;return r(n,l=>e`
    <p><code>${l.position}</code></p>
    <pre>${l.line.trim()}</pre>
    ${a&&e`<p><a href=${a}>The sub-agent's run</a></p>`}
    ${l.call&&e`<h2>Call</h2><${u} thread=${t.thread} value=${l.call} />`}
    <h2>Stack</h2>
    <ol class="stack">
      ${l.stack.map(s=>e`<li>
          ${s.text}
          ${s.seq!==t.seq&&e` <button onClick=${()=>t.go(s.seq)}>Go to ${s.seq}</button>`}
        </li>`)}
    </ol>
    ${Object.keys(l.facts).length>0&&e`<h2>Recorded</h2><${u} thread=${t.thread} value=${l.facts} />`}`)}function I(t){const n=c(t.thread,t.seq,"/preview");return e`<p>A fork from here would run this again. Nothing is run by looking.</p>
    ${r(n,o=>e`<ol class="plan">
      ${o.will_execute.map(a=>e`<li class=${a.side_effects&&a.policy==="live"?"bad":""}>
          ${a.text}
        </li>`)}
    </ol>
    ${o.total>o.will_execute.length&&e`<p class="faint">and ${o.total-o.will_execute.length} more</p>`}`)}`}function L(t){const n=c(t.thread,t.seq,"/tokens");return r(n,o=>o.rows.length?e`<table class="tokens"><thead><tr><th scope="col">Where</th><th scope="col">Model</th><th scope="col">In</th><th scope="col">Out</th><th scope="col">Total</th></tr></thead>
        <tbody>${o.rows.slice(-200).map(a=>e`<tr><td>${a.position.split("/").at(-1)}</td><td>${a.model}</td>
          ${[a.input,a.output,a.total].map(l=>e`<td class="number">${l.toLocaleString("en")}</td>`)}</tr>`)}</tbody></table>`:e`<p>No model has answered yet.</p>`)}function W(t){const n=c(t.thread,t.seq,"/route");return r(n,o=>e`<p><b>${o.chosen}</b>: ${o.reason}
      ${o.seq!==t.seq&&e` <button onClick=${()=>t.go(o.seq)}>Go to ${o.seq}</button>`}</p>
    <table><thead><tr><th scope="col">Edge</th><th scope="col">if</th><th scope="col">Reads</th><th scope="col">Holds</th></tr></thead>
      <tbody>${o.candidates.map(a=>e`<tr class=${a.result?"chosen":""}>
        <td>${a.label}</td><td>${a.predicate}</td><td><code>${a.reads}</code></td><td>${a.result===null?"not asked":a.result?"yes":"no"}</td></tr>`)}</tbody></table>`)}const v={Changes:A,Request:E,State:P,Moment:G,Graph:T,Lanes:S,Route:W,Tokens:L,Preview:I},f=Object.keys(v).filter(t=>!C.includes(t));export function Inspector(t){const[n,o]=h(f.includes(g())?g():"Changes");return e`<section class="inspector" aria-label="The chosen moment">
    <div role="tablist" aria-label="About the moment" onKeyDown=${l=>{const s={ArrowRight:1,ArrowLeft:-1}[l.key];if(!s)return;l.stopPropagation();const $=f[(f.indexOf(n)+s+f.length)%f.length];o($),document.getElementById(`tab-${$}`)?.focus()}}>
      ${f.map(l=>e`<button role="tab" id=${`tab-${l}`} aria-selected=${l===n}
          aria-controls="panel" tabindex=${l===n?0:-1} onClick=${()=>o(l)}>${l}</button>`)}
    </div>
    <div role="tabpanel" id="panel" tabindex="0" aria-labelledby=${`tab-${n}`}>
      <${v[n]} key=${n} ...${t} />
    </div>
  </section>`}
