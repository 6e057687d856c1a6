/*606df239*/
import{html as i,signal as f,useEffect as C,useRef as S,useState as d}from"./vendor/preact.js";import{ask as h,isAt as I,send as g,threadPath as D,who as R}from"./api.js";import{counted as $}from"./values.js";const A=2e4,k="wick-session",O=500;export const session=f(null),running=f(!1),said=f("");const y=f([]),b=f([]);let E=0;export const mayDebug=()=>R.value?.scopes.includes("debug")??!1;const w=()=>R.value?.scopes.includes("run")??!1,m=(e,n)=>{n.length&&(y.value=[...y.value,...n.map(a=>({kind:e,text:a}))].slice(-O))};function v(e){clearInterval(E),e?.session!==session.peek()?.session&&(running.value=!1),session.value=e,e?sessionStorage.setItem(k,e.session):sessionStorage.removeItem(k),e&&(E=setInterval(()=>running.value||h(`/sessions/${e.session}`).catch(T),A))}function T(e){(e.status===404||e.status===401)&&v(null),said.value=e.message,m("bad",[e.message])}export async function open({thread:e,agent:n}){const a=e?await g("POST",`${D(e)}/sessions`):await g("POST","/sessions",{agent:n});v(a)}export async function resume(e){const n=sessionStorage.getItem(k);if(!n||session.peek())return session.peek();const a=await h(`/sessions/${n}`).catch(()=>null);return v(a?.session.thread_id===e?a.session:null),session.peek()}export async function close(){const e=session.value?.session;v(null),b.value=[],e&&await g("DELETE",`/sessions/${e}`).catch(()=>null)}export async function say(e,n){const a=session.peek();if(!a)return null;const s=`/sessions/${a.session}`,r=()=>session.peek()?.session===a.session;m("in",[e]);try{let o=await g("POST",s,{line:e,...n?{at:n}:{}});if(running.peek())return null;for(running.value=o.running;o.running&&r();)session.value=o.session,said.value=`The agent runs: ${o.session.mode}`,m("",o.lines),o=await h(s);if(!r())return null;running.value=!1,session.value=o.session,b.value=o.plan,m("",o.lines),m("bad",o.error?[o.error]:[]);const l=o.stop;return said.value=o.error||(l?`Stopped: ${l.text||l.reason}, moment ${l.seq??0}`:said.peek()),o}catch(o){return r()&&(running.value=!1,T(o)),null}}function q({tell:e}){const n=b.value;if(!n.length)return null;const a=n.filter(t=>t.policy==="live"&&t.kind!=="node"),s=n.filter(t=>t.kind==="tool"||t.kind==="model"),r=t=>t.kind==="model"?"model":t.name,o=[...new Set(s.map(r))],l=new Set(n.filter(t=>t.side_effects).map(t=>t.name)),u=t=>s.find(c=>r(c)===t)?.policy;return i`<h3>This would execute</h3>
    <table class="policies"><tbody>${o.map(t=>i`<tr key=${t}>
      <th scope="row">${t}${l.has(t)&&i` <span class="bad">has side effects</span>`}</th>
      <td><select aria-label=${`Answers of ${t}`} value=${u(t)}
        onChange=${c=>e(`policy ${t} ${c.target.value}`)}>
        <option value="recorded">from the recording</option><option value="live">really</option><option value="ask">ask me</option>
      </select></td></tr>`)}</tbody></table>
    <p class="faint">The recorded thread stays as it is: the fork is a copy.</p>
    <button class="runs" disabled=${!w()} onClick=${()=>e("live")}>
      Run the fork: ${$(n.filter(t=>t.kind==="node").length,"node")}, ${$(a.length,"real call")}
    </button>
    <button onClick=${()=>b.value=[]}>Not now</button>
    <ol class="plan">${n.slice(0,100).map(t=>i`<li class=${t.side_effects&&t.policy==="live"?"bad":""}>${t.text}</li>`)}</ol>
    ${n.length>100&&i`<p class="faint">and ${n.length-100} more</p>`}`}function K({does:e,held:n}){const[a,s]=d(""),[r,o]=d(""),[l,u]=d(""),t=running.value,c=w()&&!t,x=p=>P=>(P.preventDefault(),e(p));return t?i`<p aria-busy="true">The agent runs.</p>
      <button onClick=${()=>e("pause")}>Pause at the next moment</button>
      <button onClick=${()=>e("abort")}>End the run</button>`:i`${n?i`<button class="runs" disabled=${!c} onClick=${()=>e("continue")}>Run to the next stop</button>
          <button class="runs" disabled=${!c} onClick=${()=>e("detach continue")}>Let the run go on alone</button>
          <button disabled=${!c} onClick=${()=>e("skip")}>Skip this call</button>
          <button onClick=${()=>e("detach keep")}>Keep it for later</button>
          <button onClick=${()=>e("abort")}>End the run</button>`:i`<form class="row-form" onSubmit=${x(`run ${/^["']/.test(a)?JSON.stringify(a):a}`)}>
          <label for="input">Message</label>
          <input id="input" value=${a} required autocomplete="off" onInput=${p=>s(p.target.value)} />
          <button class="runs" disabled=${!c}>Run, held at its first moment</button>
        </form>
        <button disabled=${!c} onClick=${()=>e("hold")}>Hold the next run that others start</button>
        <button disabled=${!c} onClick=${()=>e("live")} class="runs">Run on from the end</button>
        <button disabled=${!c} onClick=${()=>e("replay")} class="runs">Run the code again on recorded answers</button>
        <button onClick=${()=>e("fork")}>Prepare a fork from here (k)</button>`}
    <form class="row-form" onSubmit=${x(`set ${r} = ${l}`)}>
      <label for="edited">Change</label>
      <input id="edited" value=${r} required autocomplete="off" placeholder=${n?"args.expression":"messages[-1].content"}
        onInput=${p=>o(p.target.value)} />
      <label for="value">to</label>
      <input id="value" value=${l} required autocomplete="off" placeholder="JSON" onInput=${p=>u(p.target.value)} />
      <button>${n?"Change what is held":"Prepare a fork with it"}</button>
    </form>`}function N({does:e}){const n=S(null),a=S({lines:[],at:0}),s=y.value;C(()=>{n.current&&(n.current.scrollTop=n.current.scrollHeight)},[s]);const r=l=>{l.preventDefault();const u=l.target.elements.line;u.value.trim()&&(a.current.lines.push(u.value),a.current.at=a.current.lines.length,e(u.value),u.value="")},o=l=>{const u={ArrowUp:-1,ArrowDown:1}[l.key];if(!u)return;l.preventDefault();const t=a.current;t.at=Math.min(Math.max(t.at+u,0),t.lines.length),l.target.value=t.lines[t.at]??""};return i`<div class="console" ref=${n} tabindex="0" role="log" aria-live="off" aria-label="Console">
      ${s.map(l=>i`<pre class=${l.kind}>${l.text}</pre>`)}
    </div>
    <form class="row-form" onSubmit=${r}>
      <label for="line">Command</label>
      <input id="line" name="line" autocomplete="off" spellcheck=${!1} placeholder="help" onKeyDown=${o} />
      <button>Do</button>
    </form>`}export function NewRun(){const[e,n]=d(null),[a,s]=d("");C(()=>{h("/sessions").then(n,o=>s(o.message))},[]);const r=async o=>{o.preventDefault();const{agent:l,text:u}=o.target.elements;try{await close(),await open({agent:l.value});const t=await say(`run ${u.value}`);if(!I("new"))return void(t&&await close());t?.stop?location.hash=`#${D(t.session.thread_id)}/${t.session.seq??1}`:s(t?.error??said.peek())}catch(t){s(t.message)}};return i`<main class="wide"><h1>A new run, held at its first moment</h1>
    ${a&&i`<p class="bad" role="alert">${a}</p>`}
    ${e&&i`<form class="row-form" onSubmit=${r}>
      <label for="agent">Agent</label><select id="agent">${e.map(o=>i`<option>${o}</option>`)}</select>
      <label for="text">Message</label><input id="text" required autocomplete="off" placeholder="a message; for a graph, its input as JSON" />
      <button class="runs" disabled=${running.value||!w()}>Run, held</button></form>`}
  </main>`}export function Debugger({does:e}){const n=session.value;return i`<section class="debugger" aria-label="Debugger">
    <section aria-label="Stops">
      <h2>Breakpoints and watches</h2>
      <form class="row-form" onSubmit=${s=>{s.preventDefault(),e(`${s.target.elements.kind.value} ${s.target.elements.spec.value}`)}}>
        <select name="kind" aria-label="Kind of stop"><option>break</option><option>watch</option><option>catch</option><option>log</option></select>
        <label for="spec" class="sr">Breakpoint</label>
        <input id="spec" name="spec" required placeholder="tool:* if error" autocomplete="off" />
        <button>Set</button>
      </form>
      ${n&&n.breakpoints.length>0&&i`<ul>${n.breakpoints.map(s=>i`<li key=${s.number}>
        <code>${s.spec}</code> <span class="faint">${$(s.hits,"hit")}</span>
        <button aria-label=${`Delete breakpoint ${s.number}`} onClick=${()=>e(`delete ${s.number}`)}>Delete</button></li>`)}</ul>`}
    </section>
    <section aria-label="Run">
      <h2>${n?n.mode:"Run"}</h2>
      ${!b.value.length&&i`<${K} does=${e} held=${n?.held??!1} />`}
      <${q} tell=${async s=>{e(s),s!=="live"&&e("fork")}} />
      ${n&&n.executed.some(s=>s>0)&&i`<p>Really called: ${$(n.executed[0],"model")}, ${$(n.executed[1],"tool")}.</p>`}
    </section>
    <section aria-label="Commands"><h2>Console</h2><${N} does=${e} /></section>
  </section>`}
