/*fdf30253d261a899*/
import{html as l,signal as d,useEffect as C,useRef as S,useState as f}from"./vendor/preact.js";import{ask as h,send as g,who as D}from"./api.js";import{counted as b}from"./values.js";const T=2e4,k="wick-session",P=500;export const session=d(null),running=d(!1),said=d("");const y=d([]),$=d([]);let R=0;export const mayDebug=()=>D.value?.scopes.includes("debug")??!1;const w=()=>D.value?.scopes.includes("run")??!1,m=(e,n)=>{n.length&&(y.value=[...y.value,...n.map(a=>({kind:e,text:a}))].slice(-P))};function v(e){clearInterval(R),session.value=e,e?sessionStorage.setItem(k,e.session):sessionStorage.removeItem(k),e&&(R=setInterval(()=>running.value||h(`/sessions/${e.session}`).catch(E),T))}function E(e){(e.status===404||e.status===401)&&v(null),said.value=e.message,m("bad",[e.message])}export async function open({thread:e,agent:n}){const a=e?await g("POST",`/threads/${encodeURIComponent(e)}/sessions`):await g("POST","/sessions",{agent:n});v(a)}export async function resume(e){const n=sessionStorage.getItem(k);if(!n||session.peek())return session.peek();const a=await h(`/sessions/${n}`).catch(()=>null);return v(a?.session.thread_id===e?a.session:null),session.peek()}export async function close(){const e=session.value?.session;v(null),$.value=[],e&&await g("DELETE",`/sessions/${e}`).catch(()=>null)}export async function say(e,n){const a=session.peek();if(!a)return null;const o=`/sessions/${a.session}`;m("in",[e]);try{let s=await g("POST",o,{line:e,...n?{at:n}:{}});if(running.peek())return null;for(running.value=s.running;s.running;)session.value=s.session,said.value=`The agent runs: ${s.session.mode}`,m("",s.lines),s=await h(o);running.value=!1,session.value=s.session,$.value=s.plan,m("",s.lines),m("bad",s.error?[s.error]:[]);const i=s.stop;return said.value=s.error||(i?`Stopped: ${i.text||i.reason}, moment ${i.seq??0}`:said.peek()),s}catch(s){return running.value=!1,E(s),null}}function q({tell:e}){const n=$.value;if(!n.length)return null;const a=n.filter(t=>t.policy==="live"&&t.kind!=="node"),o=n.filter(t=>t.kind==="tool"||t.kind==="model"),s=t=>t.kind==="model"?"model":t.name,i=[...new Set(o.map(s))],r=new Set(n.filter(t=>t.side_effects).map(t=>t.name)),u=t=>o.find(c=>s(c)===t)?.policy;return l`<h3>This would execute</h3>
    <table class="policies"><tbody>${i.map(t=>l`<tr key=${t}>
      <th scope="row">${t}${r.has(t)&&l` <span class="bad">has side effects</span>`}</th>
      <td><select aria-label=${`Answers of ${t}`} value=${u(t)}
        onChange=${c=>e(`policy ${t} ${c.target.value}`)}>
        <option value="recorded">from the recording</option><option value="live">really</option><option value="ask">ask me</option>
      </select></td></tr>`)}</tbody></table>
    <p class="faint">The recorded thread stays as it is: the fork is a copy.</p>
    <button class="runs" disabled=${!w()} onClick=${()=>e("live")}>
      Run the fork: ${b(n.filter(t=>t.kind==="node").length,"node")}, ${b(a.length,"real call")}
    </button>
    <button onClick=${()=>$.value=[]}>Not now</button>
    <ol class="plan">${n.slice(0,100).map(t=>l`<li class=${t.side_effects&&t.policy==="live"?"bad":""}>${t.text}</li>`)}</ol>
    ${n.length>100&&l`<p class="faint">and ${n.length-100} more</p>`}`}function A({does:e,held:n}){const[a,o]=f(""),[s,i]=f(""),[r,u]=f(""),t=running.value,c=w()&&!t,x=p=>I=>(I.preventDefault(),e(p));return t?l`<p aria-busy="true">The agent runs.</p>
      <button onClick=${()=>e("pause")}>Pause at the next moment</button>
      <button onClick=${()=>e("abort")}>End the run</button>`:l`${n?l`<button class="runs" disabled=${!c} onClick=${()=>e("continue")}>Run to the next stop</button>
          <button class="runs" disabled=${!c} onClick=${()=>e("detach continue")}>Let the run go on alone</button>
          <button disabled=${!c} onClick=${()=>e("skip")}>Skip this call</button>
          <button onClick=${()=>e("detach keep")}>Keep it for later</button>
          <button onClick=${()=>e("abort")}>End the run</button>`:l`<form class="row-form" onSubmit=${x(`run ${/^["']/.test(a)?JSON.stringify(a):a}`)}>
          <label for="input">Message</label>
          <input id="input" value=${a} required autocomplete="off" onInput=${p=>o(p.target.value)} />
          <button class="runs" disabled=${!c}>Run, held at its first moment</button>
        </form>
        <button disabled=${!c} onClick=${()=>e("hold")}>Hold the next run that others start</button>
        <button disabled=${!c} onClick=${()=>e("live")} class="runs">Run on from the end</button>
        <button disabled=${!c} onClick=${()=>e("replay")} class="runs">Run the code again on recorded answers</button>
        <button onClick=${()=>e("fork")}>Prepare a fork from here (k)</button>`}
    <form class="row-form" onSubmit=${x(`set ${s} = ${r}`)}>
      <label for="edited">Change</label>
      <input id="edited" value=${s} required autocomplete="off" placeholder=${n?"args.expression":"messages[-1].content"}
        onInput=${p=>i(p.target.value)} />
      <label for="value">to</label>
      <input id="value" value=${r} required autocomplete="off" placeholder="JSON" onInput=${p=>u(p.target.value)} />
      <button>${n?"Change what is held":"Prepare a fork with it"}</button>
    </form>`}function O({does:e}){const n=S(null),a=S({lines:[],at:0}),o=y.value;C(()=>{n.current&&(n.current.scrollTop=n.current.scrollHeight)},[o]);const s=r=>{r.preventDefault();const u=r.target.elements.line;u.value.trim()&&(a.current.lines.push(u.value),a.current.at=a.current.lines.length,e(u.value),u.value="")},i=r=>{const u={ArrowUp:-1,ArrowDown:1}[r.key];if(!u)return;r.preventDefault();const t=a.current;t.at=Math.min(Math.max(t.at+u,0),t.lines.length),r.target.value=t.lines[t.at]??""};return l`<div class="console" ref=${n} tabindex="0" role="log" aria-live="off" aria-label="Console">
      ${o.map(r=>l`<pre class=${r.kind}>${r.text}</pre>`)}
    </div>
    <form class="row-form" onSubmit=${s}>
      <label for="line">Command</label>
      <input id="line" name="line" autocomplete="off" spellcheck=${!1} placeholder="help" onKeyDown=${i} />
      <button>Do</button>
    </form>`}export function NewRun(){const[e,n]=f(null),[a,o]=f("");C(()=>{h("/sessions").then(n,i=>o(i.message))},[]);const s=async i=>{i.preventDefault();const{agent:r,text:u}=i.target.elements;try{await close(),await open({agent:r.value});const t=await say(`run ${u.value}`);t?.stop?location.hash=`#/threads/${encodeURIComponent(t.session.thread_id)}/${t.session.seq??1}`:o(t?.error??said.peek())}catch(t){o(t.message)}};return l`<main class="wide"><h1>A new run, held at its first moment</h1>
    ${a&&l`<p class="bad" role="alert">${a}</p>`}
    ${e&&l`<form class="row-form" onSubmit=${s}>
      <label for="agent">Agent</label><select id="agent">${e.map(i=>l`<option>${i}</option>`)}</select>
      <label for="text">Message</label><input id="text" required autocomplete="off" placeholder="a message; for a graph, its input as JSON" />
      <button class="runs" disabled=${running.value||!w()}>Run, held</button></form>`}
  </main>`}export function Debugger({does:e}){const n=session.value;return l`<section class="debugger" aria-label="Debugger">
    <section aria-label="Stops">
      <h2>Breakpoints and watches</h2>
      <form class="row-form" onSubmit=${o=>{o.preventDefault(),e(`${o.target.elements.kind.value} ${o.target.elements.spec.value}`)}}>
        <select name="kind" aria-label="Kind of stop"><option>break</option><option>watch</option><option>catch</option><option>log</option></select>
        <label for="spec" class="sr">Breakpoint</label>
        <input id="spec" name="spec" required placeholder="tool:* if error" autocomplete="off" />
        <button>Set</button>
      </form>
      ${n&&n.breakpoints.length>0&&l`<ul>${n.breakpoints.map(o=>l`<li key=${o.number}>
        <code>${o.spec}</code> <span class="faint">${b(o.hits,"hit")}</span>
        <button aria-label=${`Delete breakpoint ${o.number}`} onClick=${()=>e(`delete ${o.number}`)}>Delete</button></li>`)}</ul>`}
    </section>
    <section aria-label="Run">
      <h2>${n?n.mode:"Run"}</h2>
      ${!$.value.length&&l`<${A} does=${e} held=${n?.held??!1} />`}
      <${q} tell=${async o=>{e(o),o!=="live"&&e("fork")}} />
      ${n&&n.executed.some(o=>o>0)&&l`<p>Really called: ${b(n.executed[0],"model")}, ${b(n.executed[1],"tool")}.</p>`}
    </section>
    <section aria-label="Commands"><h2>Console</h2><${O} does=${e} /></section>
  </section>`}
