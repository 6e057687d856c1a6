/*7ecb47b7*/
import{html as e,useEffect as x,useState as h}from"./vendor/preact.js";import{ask as C,isFile as p,lacks as T,tabOf as g,threadPath as y}from"./api.js";import{Graph as S}from"./graph.js";import{Lanes as O}from"./lanes.js";import{counted as k,Value as u}from"./values.js";const A=120;function c(t,s,o,a){const l=`${t} ${s} ${o} ${JSON.stringify(a)}`,[n,$]=h({key:""});return x(()=>{const i=new AbortController,b=setTimeout(()=>{C(`/threads/${t}/moments/${s}${o}`,a,i.signal).then(d=>$({key:l,answer:d}),d=>i.signal.aborted||$({key:l,error:d.message}))},n.key?A:0);return()=>(clearTimeout(b),i.abort())},[l]),{...n,isOld:n.key!==l}}function r(t,s){return t.isOld&&!t.answer?e`<p class="faint" aria-busy="true">Loading …</p>`:t.error?e`<p class="bad" role="alert">${t.error}</p>`:e`<div aria-busy=${t.isOld}>${s(t.answer)}</div>`}function v({thread:t,seq:s,go:o,path:a}){const l=c(t,s,"/why",{path:a});return r(l,n=>e`<ol class="why" aria-label=${`Why ${a}`}>
    ${n.causes.map($=>e`<li>
        ${$.text} ${$.thread_id?e`<a href=${`#${y($.thread_id)}/${$.seq}`}>Go to ${$.thread_id}</a>`:e`<button onClick=${()=>o($.seq)}>Go to ${$.seq}</button>`}
      </li>`)}
  </ol>`)}function P({thread:t,at:s,go:o,node:a,change:l}){const[n,$]=h(!1);return e`<li class=${`change ${l.op}`}>
    <p class="line">
      <b>${{add:"+ added",remove:"− removed",change:"~ changed"}[l.op]}</b>
      <code>${l.path}</code>
      ${l.op!=="remove"&&!p&&e`<button aria-expanded=${n} onClick=${()=>$(!n)}>Why?</button>`}
    </p>
    ${l.op!=="add"&&e`<div class="before"><${u} thread=${t} value=${l.before} /></div>`}
    ${l.op!=="remove"&&e`<div class="after"><${u} thread=${t} value=${l.after} /></div>`}
    ${n&&e`<${v} thread=${t} seq=${s} go=${o} node=${a} path=${l.path} />`}
  </li>`}function R(t){const[s,o]=h(0),a=c(t.thread,t.seq,"/diff",s?{to:s}:void 0),l=c(t.thread,t.seq,"/writes");return e`<form class="row-form" onSubmit=${n=>(n.preventDefault(),o(Number(n.target.elements.to.value)))}>
      <label for="to">Up to moment</label><input id="to" name="to" type="number" min="1" placeholder="the end of this step" /><button>Show</button>
    </form>
    ${r(a,n=>n.changes.length?e`<ul class="changes">
            ${n.changes.map($=>e`<${P} key=${`${t.seq} ${$.path}`} ...${t} change=${$} at=${n.at} />`)}
          </ul>`:e`<p>${s?"Nothing is different there.":"This step changed nothing."}</p>`)}
    ${!l.error&&l.answer?.writes.length>0&&e`<h2>Written in this step, not yet in the state</h2>
        ${l.answer.writes.map(n=>e`<p><code>${n.channel}</code> by ${n.node}</p>
            <${u} thread=${t.thread} value=${n.value} />`)}`}`}function _(t){const[s,o]=h(""),[a,l]=h(""),[n,$]=h(0),i=c(t.thread,t.seq,"/state",{path:s,offset:n});return e`<form class="row-form" onSubmit=${d=>(d.preventDefault(),$(0),o(a.trim()))}>
      <label for="path">Path</label>
      <input id="path" value=${a} placeholder="messages[-1].content" autocomplete="off"
        onInput=${d=>l(d.target.value)} />
      <button>Show</button>
    </form>
    ${r(i,d=>e`
      ${d.total!==null&&d.total>100&&e`<p class="line faint">
          ${d.offset+1} to ${Math.min(d.offset+100,d.total)} of ${k(d.total,"item")}
          <button disabled=${!n} onClick=${()=>$(Math.max(0,n-100))}>Earlier</button>
          <button disabled=${n+100>=d.total} onClick=${()=>$(n+100)}>Later</button>
        </p>`}
      <${u} thread=${t.thread} value=${d.value} />
      ${d.path&&!p&&e`<h2>Why</h2><${v} ...${t} path=${d.path} />`}`)}`}function E({thread:t,go:s,part:o}){const a={kept:"from",added:"added by",dropped:"dropped by"}[o.op];return e`<li class=${o.op}>
    <p class="line">
      <b>${o.part==="setting"?o.name:o.part}</b>
      <span class="source">${a??o.op} ${o.by}</span>
      ${o.seq!==null&&e`<button onClick=${()=>s(o.seq)}>Go to ${o.seq}</button>`}
    </p>
    <${u} thread=${t} value=${o.value} />
  </li>`}const m=50;function G(t){const[s,o]=h(-1),a=c(t.thread,t.seq,"/request"),l=s<0?{limit:m}:{limit:m,offset:s},n=c(t.thread,t.seq,"/blame",l),$={at:"of this moment",before:"the last before this moment",after:"the next after this moment"};return a.error?e`<p class="bad" role="alert">${a.error}</p>`:e`${r(a,i=>e`<h2>Request ${$[i.when]}</h2>
      <p>
        ${i.model} · ${i.purpose} · ${k(i.messages,"message")} · moment ${i.seq} ·
        ${" "}${i.exact?"exactly what was sent":i.note}
      </p>`)}
    ${r(n,i=>e`<p class="line faint">
        Parts ${i.offset+1} to ${i.offset+i.parts.length} of ${i.total}
        <button disabled=${!i.offset} onClick=${()=>o(Math.max(0,i.offset-m))}>Earlier</button>
        <button disabled=${i.offset+i.parts.length>=i.total}
          onClick=${()=>o(i.offset+m)}>Later</button>
      </p>
      <ol class="parts">
        ${i.parts.map(b=>e`<${E} ...${t} part=${b} />`)}
      </ol>`)}`}function L(t){const s=c(t.thread,t.seq,""),o=t.row?.kind==="agent"&&s.answer?.facts.thread,a=p?s.answer?.below:typeof o=="string"&&`#${y(o)}`;return r(s,l=>e`
    <p><code>${l.position}</code></p>
    <pre>${l.line.trim()}</pre>
    ${a&&e`<p><a href=${a}>The sub-agent's run</a></p>`}
    ${l.call&&e`<h2>Call</h2><${u} thread=${t.thread} value=${l.call} />`}
    <h2>Stack</h2>
    <ol class="stack">
      ${l.stack.map(n=>e`<li>
          ${n.text}
          ${n.seq!==t.seq&&e` <button onClick=${()=>t.go(n.seq)}>Go to ${n.seq}</button>`}
        </li>`)}
    </ol>
    ${Object.keys(l.facts).length>0&&e`<h2>Recorded</h2><${u} thread=${t.thread} value=${l.facts} />`}`)}function W(t){const s=c(t.thread,t.seq,"/preview");return e`<p>A fork from here would run this again. Nothing is run by looking.</p>
    ${r(s,o=>e`<ol class="plan">
      ${o.will_execute.map(a=>e`<li class=${a.side_effects&&a.policy==="live"?"bad":""}>
          ${a.text}
        </li>`)}
    </ol>
    ${o.total>o.will_execute.length&&e`<p class="faint">and ${o.total-o.will_execute.length} more</p>`}`)}`}function M(t){const s=c(t.thread,t.seq,"/tokens");return r(s,o=>o.rows.length?e`<table class="tokens"><thead><tr><th scope="col">Where</th><th scope="col">Model</th><th scope="col">In</th><th scope="col">Out</th><th scope="col">Total</th></tr></thead>
        <tbody>${o.rows.slice(-200).map(a=>e`<tr><td>${a.position.split("/").at(-1)}</td><td>${a.model}</td>
          ${[a.input,a.output,a.total].map(l=>e`<td class="number">${l.toLocaleString("en")}</td>`)}</tr>`)}</tbody></table>`:e`<p>No model has answered yet.</p>`)}function N(t){const s=c(t.thread,t.seq,"/route");return r(s,o=>e`<p><b>${o.chosen}</b>: ${o.reason}
      ${o.seq!==t.seq&&e` <button onClick=${()=>t.go(o.seq)}>Go to ${o.seq}</button>`}</p>
    <table><thead><tr><th scope="col">Edge</th><th scope="col">if</th><th scope="col">Reads</th><th scope="col">Holds</th></tr></thead>
      <tbody>${o.candidates.map(a=>e`<tr class=${a.result?"chosen":""}>
        <td>${a.label}</td><td>${a.predicate}</td><td><code>${a.reads}</code></td><td>${a.result===null?"not asked":a.result?"yes":"no"}</td></tr>`)}</tbody></table>`)}const q={Changes:R,Request:G,State:_,Moment:L,Graph:S,Lanes:O,Route:N,Tokens:M,Preview:W},f=Object.keys(q).filter(t=>!T.includes(t));export function Inspector(t){const[s,o]=h(f.includes(g())?g():"Changes");return e`<section class="inspector" aria-label="The chosen moment">
    <div role="tablist" aria-label="About the moment" onKeyDown=${l=>{const n={ArrowRight:1,ArrowLeft:-1}[l.key];if(!n)return;l.stopPropagation();const $=f[(f.indexOf(s)+n+f.length)%f.length];o($),document.getElementById(`tab-${$}`)?.focus()}}>
      ${f.map(l=>e`<button role="tab" id=${`tab-${l}`} aria-selected=${l===s}
          aria-controls="panel" tabindex=${l===s?0:-1} onClick=${()=>o(l)}>${l}</button>`)}
    </div>
    <div role="tabpanel" id="panel" tabindex="0" aria-labelledby=${`tab-${s}`}>
      <${q[s]} key=${s} ...${t} />
    </div>
  </section>`}
