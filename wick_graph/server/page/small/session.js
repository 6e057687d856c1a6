/*c470c55c*/
import{html as l,signal as f,useEffect as C,useRef as S,useState as d}from"./vendor/preact.js";import{ask as h,can as k,isAt as P,send as g,threadPath as D}from"./api.js";import{counted as $}from"./values.js";const I=2e4,y="wick-session",A=500;export const session=f(null),running=f(!1),said=f("");const w=f([]),b=f([]);let E=0;const m=(e,n)=>{n.length&&(w.value=[...w.value,...n.map(a=>({kind:e,text:a}))].slice(-A))};function v(e){clearInterval(E),e?.session!==session.peek()?.session&&(running.value=!1),session.value=e,e?sessionStorage.setItem(y,e.session):sessionStorage.removeItem(y),e&&(E=setInterval(()=>running.value||h(`/sessions/${e.session}`).catch(R),I))}function R(e){(e.status===404||e.status===401)&&v(null),said.value=e.message,m("bad",[e.message])}export async function open({thread:e,agent:n}){const a=e?await g("POST",`${D(e)}/sessions`):await g("POST","/sessions",{agent:n});v(a)}export async function resume(e){const n=sessionStorage.getItem(y);if(!n||session.peek())return session.peek();const a=await h(`/sessions/${n}`).catch(()=>null);return v(a?.session.thread_id===e?a.session:null),session.peek()}export async function close(){const e=session.value?.session;v(null),b.value=[],e&&await g("DELETE",`/sessions/${e}`).catch(()=>null)}export async function say(e,n){const a=session.peek();if(!a)return null;const o=`/sessions/${a.session}`,r=()=>session.peek()?.session===a.session;m("in",[e]);try{let s=await g("POST",o,{line:e,...n?{at:n}:{}});if(running.peek()||!r())return null;for(running.value=s.running;s.running&&r();)session.value=s.session,said.value=`The agent runs: ${s.session.mode}`,m("",s.lines),s=await h(o);if(!r())return null;running.value=!1,session.value=s.session,b.value=s.plan,m("",s.lines),m("bad",s.error?[s.error]:[]);const t=s.stop;return said.value=s.error||(t?`Stopped: ${t.text||t.reason}, moment ${t.seq??0}`:said.peek()),s}catch(s){return r()&&(running.value=!1,R(s)),null}}function q({tell:e}){const n=b.value;if(!n.length)return null;const a=n.filter(t=>t.policy==="live"&&t.kind!=="node"),o=n.filter(t=>!t.edited&&(t.kind==="tool"||t.kind==="model")),r=new Map(o.map(t=>[t.kind==="model"?"model":t.name,t.policy])),s=new Set(n.filter(t=>t.side_effects).map(t=>t.name));return l`<h3>This would execute</h3>
    <table class="policies"><tbody>${[...r].map(([t,u])=>l`<tr key=${t}>
      <th scope="row">${t}${s.has(t)&&l` <span class="bad">has side effects</span>`}</th>
      <td><select aria-label=${`Answers of ${t}`} value=${u}
        onChange=${i=>e(`policy ${t} ${i.target.value}`)}>
        <option value="recorded">from the recording</option><option value="live">really</option><option value="ask">ask me</option>
      </select></td></tr>`)}</tbody></table>
    <p class="faint">The recorded thread stays as it is: the fork is a copy.</p>
    <button class="runs" disabled=${!k("run")} onClick=${()=>e("live")}>
      Run the fork: ${$(n.filter(t=>t.kind==="node").length,"node")}, ${$(a.length,"real call")}
    </button>
    <button onClick=${()=>b.value=[]}>Not now</button>
    <ol class="plan">${n.slice(0,100).map(t=>l`<li class=${t.side_effects&&t.policy==="live"?"bad":""}>${t.text}</li>`)}</ol>
    ${n.length>100&&l`<p class="faint">and ${n.length-100} more</p>`}`}function O({does:e,held:n}){const[a,o]=d(""),[r,s]=d(""),[t,u]=d(""),i=running.value,c=k("run")&&!i,x=p=>T=>(T.preventDefault(),e(p));return i?l`<p aria-busy="true">The agent runs.</p>
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
    <form class="row-form" onSubmit=${x(`set ${r} = ${t}`)}>
      <label for="edited">Change</label>
      <input id="edited" value=${r} required autocomplete="off" placeholder=${n?"args.expression":"messages[-1].content"}
        onInput=${p=>s(p.target.value)} />
      <label for="value">to</label>
      <input id="value" value=${t} required autocomplete="off" placeholder="JSON" onInput=${p=>u(p.target.value)} />
      <button>${n?"Change what is held":"Prepare a fork with it"}</button>
    </form>`}function K({does:e}){const n=S(null),a=S({lines:[],at:0}),o=w.value;C(()=>{n.current&&(n.current.scrollTop=n.current.scrollHeight)},[o]);const r=t=>{t.preventDefault();const u=t.target.elements.line;u.value.trim()&&(a.current.lines.push(u.value),a.current.at=a.current.lines.length,e(u.value),u.value="")},s=t=>{const u={ArrowUp:-1,ArrowDown:1}[t.key];if(!u)return;t.preventDefault();const i=a.current;i.at=Math.min(Math.max(i.at+u,0),i.lines.length),t.target.value=i.lines[i.at]??""};return l`<div class="console" ref=${n} tabindex="0" role="log" aria-live="off" aria-label="Console">
      ${o.map(t=>l`<pre class=${t.kind}>${t.text}</pre>`)}
    </div>
    <form class="row-form" onSubmit=${r}>
      <label for="line">Command</label>
      <input id="line" name="line" autocomplete="off" spellcheck=${!1} placeholder="help" onKeyDown=${s} />
      <button>Do</button>
    </form>`}export function NewRun(){const[e,n]=d(null),[a,o]=d("");C(()=>{h("/sessions").then(n,s=>o(s.message))},[]);const r=async s=>{s.preventDefault();const{agent:t,text:u}=s.target.elements;try{await close(),await open({agent:t.value});const i=session.peek()?.session,c=await say(`run ${u.value}`);if(!P("new"))return void(session.peek()?.session===i&&await close());c?.stop?location.hash=`#${D(c.session.thread_id)}/${c.session.seq??1}`:o(c?.error??said.peek())}catch(i){o(i.message)}};return l`<main class="wide"><h1>A new run, held at its first moment</h1>
    ${a&&l`<p class="bad" role="alert">${a}</p>`}
    ${e&&l`<form class="row-form" onSubmit=${r}>
      <label for="agent">Agent</label><select id="agent">${e.map(s=>l`<option>${s}</option>`)}</select>
      <label for="text">Message</label><input id="text" required autocomplete="off" placeholder="a message; for a graph, its input as JSON" />
      <button class="runs" disabled=${running.value||!k("run")}>Run, held</button></form>`}
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
        <code>${o.spec}</code> <span class="faint">${$(o.hits,"hit")}</span>
        <button aria-label=${`Delete breakpoint ${o.number}`} onClick=${()=>e(`delete ${o.number}`)}>Delete</button></li>`)}</ul>`}
    </section>
    <section aria-label="Run">
      <h2>${n?n.mode:"Run"}</h2>
      ${!b.value.length&&l`<${O} does=${e} held=${n?.held??!1} />`}
      <${q} tell=${async o=>{e(o),o!=="live"&&e("fork")}} />
      ${n&&n.executed.some(o=>o>0)&&l`<p>Really called: ${$(n.executed[0],"model")}, ${$(n.executed[1],"tool")}.</p>`}
    </section>
    <section aria-label="Commands"><h2>Console</h2><${K} does=${e} /></section>
  </section>`}
