/*c36796229ddf00a3*/
import{html as o,useEffect as g,useState as h}from"./vendor/preact.js";import{ask as k}from"./api.js";import{Graph as v}from"./graph.js";import{Lanes as q}from"./lanes.js";import{counted as m,Value as u}from"./values.js";const x=120;function c(t,s,e,l){const $=`${t} ${s} ${e} ${JSON.stringify(l)}`,[a,i]=h({key:""});return g(()=>{const n=new AbortController,f=setTimeout(()=>{k(`/threads/${t}/moments/${s}${e}`,l,n.signal).then(d=>i({key:$,answer:d}),d=>n.signal.aborted||i({key:$,error:d.message}))},a.key?x:0);return()=>(clearTimeout(f),n.abort())},[$]),{...a,isOld:a.key!==$}}function r(t,s){return t.isOld&&!t.answer?o`<p class="faint" aria-busy="true">Loading …</p>`:t.error?o`<p class="bad" role="alert">${t.error}</p>`:o`<div aria-busy=${t.isOld}>${s(t.answer)}</div>`}function p({thread:t,seq:s,go:e,path:l}){const $=c(t,s,"/why",{path:l});return r($,a=>o`<ol class="why" aria-label=${`Why ${l}`}>
    ${a.causes.map(i=>o`<li>
        ${i.text} ${i.thread_id?o`<a href=${`#/threads/${encodeURIComponent(i.thread_id)}/${i.seq}`}>Go to ${i.thread_id}</a>`:o`<button onClick=${()=>e(i.seq)}>Go to ${i.seq}</button>`}
      </li>`)}
  </ol>`)}function C({thread:t,at:s,go:e,node:l,change:$}){const[a,i]=h(!1);return o`<li class=${`change ${$.op}`}>
    <p class="line">
      <b>${{add:"+ added",remove:"− removed",change:"~ changed"}[$.op]}</b>
      <code>${$.path}</code>
      ${$.op!=="remove"&&o`<button aria-expanded=${a} onClick=${()=>i(!a)}>Why?</button>`}
    </p>
    ${$.op!=="add"&&o`<div class="before"><${u} thread=${t} value=${$.before} /></div>`}
    ${$.op!=="remove"&&o`<div class="after"><${u} thread=${t} value=${$.after} /></div>`}
    ${a&&o`<${p} thread=${t} seq=${s} go=${e} node=${l} path=${$.path} />`}
  </li>`}function S(t){const[s,e]=h(0),l=c(t.thread,t.seq,"/diff",s?{to:s}:void 0),$=c(t.thread,t.seq,"/writes");return o`<form class="row-form" onSubmit=${a=>(a.preventDefault(),e(Number(a.target.elements.to.value)))}>
      <label for="to">Up to moment</label><input id="to" name="to" type="number" min="1" placeholder="the end of this step" /><button>Show</button>
    </form>
    ${r(l,a=>a.changes.length?o`<ul class="changes">
            ${a.changes.map(i=>o`<${C} key=${`${t.seq} ${i.path}`} ...${t} change=${i} at=${a.at} />`)}
          </ul>`:o`<p>${s?"Nothing is different there.":"This step changed nothing."}</p>`)}
    ${!$.error&&$.answer?.writes.length>0&&o`<h2>Written in this step, not yet in the state</h2>
        ${$.answer.writes.map(a=>o`<p><code>${a.channel}</code> by ${a.node}</p>
            <${u} thread=${t.thread} value=${a.value} />`)}`}`}function T(t){const[s,e]=h(""),[l,$]=h(""),[a,i]=h(0),n=c(t.thread,t.seq,"/state",{path:s,offset:a});return o`<form class="row-form" onSubmit=${d=>(d.preventDefault(),i(0),e(l.trim()))}>
      <label for="path">Path</label>
      <input id="path" value=${l} placeholder="messages[-1].content" autocomplete="off"
        onInput=${d=>$(d.target.value)} />
      <button>Show</button>
    </form>
    ${r(n,d=>o`
      ${d.total!==null&&d.total>100&&o`<p class="line faint">
          ${d.offset+1} to ${Math.min(d.offset+100,d.total)} of ${m(d.total,"item")}
          <button disabled=${!a} onClick=${()=>i(Math.max(0,a-100))}>Earlier</button>
          <button disabled=${a+100>=d.total} onClick=${()=>i(a+100)}>Later</button>
        </p>`}
      <${u} thread=${t.thread} value=${d.value} />
      ${d.path&&o`<h2>Why</h2><${p} ...${t} path=${d.path} />`}`)}`}function O({thread:t,go:s,part:e}){const l={kept:"from",added:"added by",dropped:"dropped by"}[e.op];return o`<li class=${e.op}>
    <p class="line">
      <b>${e.part==="setting"?e.name:e.part}</b>
      <span class="source">${l??e.op} ${e.by}</span>
      ${e.seq!==null&&o`<button onClick=${()=>s(e.seq)}>Go to ${e.seq}</button>`}
    </p>
    <${u} thread=${t} value=${e.value} />
  </li>`}const b=50;function A(t){const[s,e]=h(-1),l=c(t.thread,t.seq,"/request"),$=s<0?{limit:b}:{limit:b,offset:s},a=c(t.thread,t.seq,"/blame",$),i={at:"of this moment",before:"the last before this moment",after:"the next after this moment"};return l.error?o`<p class="bad" role="alert">${l.error}</p>`:o`${r(l,n=>o`<h2>Request ${i[n.when]}</h2>
      <p>
        ${n.model} · ${n.purpose} · ${m(n.messages,"message")} · moment ${n.seq} ·
        ${" "}${n.exact?"exactly what was sent":n.note}
      </p>`)}
    ${r(a,n=>o`<p class="line faint">
        Parts ${n.offset+1} to ${n.offset+n.parts.length} of ${n.total}
        <button disabled=${!n.offset} onClick=${()=>e(Math.max(0,n.offset-b))}>Earlier</button>
        <button disabled=${n.offset+n.parts.length>=n.total}
          onClick=${()=>e(n.offset+b)}>Later</button>
      </p>
      <ol class="parts">
        ${n.parts.map(f=>o`<${O} ...${t} part=${f} />`)}
      </ol>`)}`}function R(t){const s=c(t.thread,t.seq,"");return r(s,e=>o`
    <p><code>${e.position}</code></p>
    <pre>${e.line.trim()}</pre>
    ${e.call&&o`<h2>Call</h2><${u} thread=${t.thread} value=${e.call} />`}
    <h2>Stack</h2>
    <ol class="stack">
      ${e.stack.map(l=>o`<li>
          ${l.text}
          ${l.seq!==t.seq&&o` <button onClick=${()=>t.go(l.seq)}>Go to ${l.seq}</button>`}
        </li>`)}
    </ol>
    ${Object.keys(e.facts).length>0&&o`<h2>Recorded</h2><${u} thread=${t.thread} value=${e.facts} />`}`)}function P(t){const s=c(t.thread,t.seq,"/preview");return o`<p>A fork from here would run this again. Nothing is run by looking.</p>
    ${r(s,e=>o`<ol class="plan">
      ${e.will_execute.map(l=>o`<li class=${l.side_effects&&l.policy==="live"?"bad":""}>
          ${l.text}
        </li>`)}
    </ol>
    ${e.total>e.will_execute.length&&o`<p class="faint">and ${e.total-e.will_execute.length} more</p>`}`)}`}function _(t){const s=c(t.thread,t.seq,"/tokens");return r(s,e=>e.rows.length?o`<table class="tokens"><thead><tr><th scope="col">Where</th><th scope="col">Model</th><th scope="col">In</th><th scope="col">Out</th><th scope="col">Total</th></tr></thead>
        <tbody>${e.rows.slice(-200).map(l=>o`<tr><td>${l.position.split("/").at(-1)}</td><td>${l.model}</td>
          ${[l.input,l.output,l.total].map($=>o`<td class="number">${$.toLocaleString("en")}</td>`)}</tr>`)}</tbody></table>`:o`<p>No model has answered yet.</p>`)}function E(t){const s=c(t.thread,t.seq,"/route");return r(s,e=>o`<p><b>${e.chosen}</b>: ${e.reason}
      ${e.seq!==t.seq&&o` <button onClick=${()=>t.go(e.seq)}>Go to ${e.seq}</button>`}</p>
    <table><thead><tr><th scope="col">Edge</th><th scope="col">if</th><th scope="col">Reads</th><th scope="col">Holds</th></tr></thead>
      <tbody>${e.candidates.map(l=>o`<tr class=${l.result?"chosen":""}>
        <td>${l.label}</td><td>${l.predicate}</td><td><code>${l.reads}</code></td><td>${l.result===null?"not asked":l.result?"yes":"no"}</td></tr>`)}</tbody></table>`)}const y={Changes:S,Request:A,State:T,Moment:R,Graph:v,Lanes:q,Route:E,Tokens:_,Preview:P};export function Inspector(t){const[s,e]=h("Changes"),l=Object.keys(y);return o`<section class="inspector" aria-label="The chosen moment">
    <div role="tablist" aria-label="About the moment" onKeyDown=${a=>{const i={ArrowRight:1,ArrowLeft:-1}[a.key];if(!i)return;a.stopPropagation();const n=l[(l.indexOf(s)+i+l.length)%l.length];e(n),document.getElementById(`tab-${n}`)?.focus()}}>
      ${l.map(a=>o`<button role="tab" id=${`tab-${a}`} aria-selected=${a===s}
          aria-controls="panel" tabindex=${a===s?0:-1} onClick=${()=>e(a)}>${a}</button>`)}
    </div>
    <div role="tabpanel" id="panel" tabindex="0" aria-labelledby=${`tab-${s}`}>
      <${y[s]} key=${s} ...${t} />
    </div>
  </section>`}
