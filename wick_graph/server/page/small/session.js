/*5e46ecfc*/
import{html as i,signal as f,useEffect as C,useRef as S,useState as d}from"./vendor/preact.js";import{ask as h,can as k,isAt as P,send as g,threadPath as D}from"./api.js";import{counted as $}from"./values.js";const I=2e4,y="wick-session",A=500;export const session=f(null),running=f(!1),said=f("");const w=f([]),b=f([]);let E=0;const m=(e,t)=>{t.length&&(w.value=[...w.value,...t.map(a=>({kind:e,text:a}))].slice(-A))};function v(e){clearInterval(E),e?.session!==session.peek()?.session&&(running.value=!1),session.value=e,e?sessionStorage.setItem(y,e.session):sessionStorage.removeItem(y),e&&(E=setInterval(()=>running.value||h(`/sessions/${e.session}`).catch(R),I))}function R(e){(e.status===404||e.status===401)&&v(null),said.value=e.message,m("bad",[e.message])}export async function open({thread:e,agent:t}){const a=e?await g("POST",`${D(e)}/sessions`):await g("POST","/sessions",{agent:t});v(a)}export async function resume(e){const t=sessionStorage.getItem(y);if(!t||session.peek())return session.peek();const a=await h(`/sessions/${t}`).catch(()=>null);return v(a?.session.thread_id===e?a.session:null),session.peek()}export async function close(){const e=session.value?.session;v(null),b.value=[],e&&await g("DELETE",`/sessions/${e}`).catch(()=>null)}export async function say(e,t){const a=session.peek();if(!a)return null;const s=`/sessions/${a.session}`,u=()=>session.peek()?.session===a.session;m("in",[e]);try{let o=await g("POST",s,{line:e,...t?{at:t}:{}});if(running.peek()||!u())return null;for(running.value=o.running;o.running&&u();)session.value=o.session,said.value=`The agent runs: ${o.session.mode}`,m("",o.lines),o=await h(s);if(!u())return null;running.value=!1,session.value=o.session,b.value=o.plan,m("",o.lines),m("bad",o.error?[o.error]:[]);const l=o.stop;return said.value=o.error||(l?`Stopped: ${l.text||l.reason}, moment ${l.seq??0}`:said.peek()),o}catch(o){return u()&&(running.value=!1,R(o)),null}}function O({tell:e}){const t=b.value;if(!t.length)return null;const a=t.filter(n=>n.policy==="live"&&n.kind!=="node"),s=t.filter(n=>n.kind==="tool"||n.kind==="model"),u=n=>n.kind==="model"?"model":n.name,o=[...new Set(s.map(u))],l=new Set(t.filter(n=>n.side_effects).map(n=>n.name)),c=n=>s.find(r=>u(r)===n)?.policy;return i`<h3>This would execute</h3>
    <table class="policies"><tbody>${o.map(n=>i`<tr key=${n}>
      <th scope="row">${n}${l.has(n)&&i` <span class="bad">has side effects</span>`}</th>
      <td><select aria-label=${`Answers of ${n}`} value=${c(n)}
        onChange=${r=>e(`policy ${n} ${r.target.value}`)}>
        <option value="recorded">from the recording</option><option value="live">really</option><option value="ask">ask me</option>
      </select></td></tr>`)}</tbody></table>
    <p class="faint">The recorded thread stays as it is: the fork is a copy.</p>
    <button class="runs" disabled=${!k("run")} onClick=${()=>e("live")}>
      Run the fork: ${$(t.filter(n=>n.kind==="node").length,"node")}, ${$(a.length,"real call")}
    </button>
    <button onClick=${()=>b.value=[]}>Not now</button>
    <ol class="plan">${t.slice(0,100).map(n=>i`<li class=${n.side_effects&&n.policy==="live"?"bad":""}>${n.text}</li>`)}</ol>
    ${t.length>100&&i`<p class="faint">and ${t.length-100} more</p>`}`}function q({does:e,held:t}){const[a,s]=d(""),[u,o]=d(""),[l,c]=d(""),n=running.value,r=k("run")&&!n,x=p=>T=>(T.preventDefault(),e(p));return n?i`<p aria-busy="true">The agent runs.</p>
      <button onClick=${()=>e("pause")}>Pause at the next moment</button>
      <button onClick=${()=>e("abort")}>End the run</button>`:i`${t?i`<button class="runs" disabled=${!r} onClick=${()=>e("continue")}>Run to the next stop</button>
          <button class="runs" disabled=${!r} onClick=${()=>e("detach continue")}>Let the run go on alone</button>
          <button disabled=${!r} onClick=${()=>e("skip")}>Skip this call</button>
          <button onClick=${()=>e("detach keep")}>Keep it for later</button>
          <button onClick=${()=>e("abort")}>End the run</button>`:i`<form class="row-form" onSubmit=${x(`run ${/^["']/.test(a)?JSON.stringify(a):a}`)}>
          <label for="input">Message</label>
          <input id="input" value=${a} required autocomplete="off" onInput=${p=>s(p.target.value)} />
          <button class="runs" disabled=${!r}>Run, held at its first moment</button>
        </form>
        <button disabled=${!r} onClick=${()=>e("hold")}>Hold the next run that others start</button>
        <button disabled=${!r} onClick=${()=>e("live")} class="runs">Run on from the end</button>
        <button disabled=${!r} onClick=${()=>e("replay")} class="runs">Run the code again on recorded answers</button>
        <button onClick=${()=>e("fork")}>Prepare a fork from here (k)</button>`}
    <form class="row-form" onSubmit=${x(`set ${u} = ${l}`)}>
      <label for="edited">Change</label>
      <input id="edited" value=${u} required autocomplete="off" placeholder=${t?"args.expression":"messages[-1].content"}
        onInput=${p=>o(p.target.value)} />
      <label for="value">to</label>
      <input id="value" value=${l} required autocomplete="off" placeholder="JSON" onInput=${p=>c(p.target.value)} />
      <button>${t?"Change what is held":"Prepare a fork with it"}</button>
    </form>`}function K({does:e}){const t=S(null),a=S({lines:[],at:0}),s=w.value;C(()=>{t.current&&(t.current.scrollTop=t.current.scrollHeight)},[s]);const u=l=>{l.preventDefault();const c=l.target.elements.line;c.value.trim()&&(a.current.lines.push(c.value),a.current.at=a.current.lines.length,e(c.value),c.value="")},o=l=>{const c={ArrowUp:-1,ArrowDown:1}[l.key];if(!c)return;l.preventDefault();const n=a.current;n.at=Math.min(Math.max(n.at+c,0),n.lines.length),l.target.value=n.lines[n.at]??""};return i`<div class="console" ref=${t} tabindex="0" role="log" aria-live="off" aria-label="Console">
      ${s.map(l=>i`<pre class=${l.kind}>${l.text}</pre>`)}
    </div>
    <form class="row-form" onSubmit=${u}>
      <label for="line">Command</label>
      <input id="line" name="line" autocomplete="off" spellcheck=${!1} placeholder="help" onKeyDown=${o} />
      <button>Do</button>
    </form>`}export function NewRun(){const[e,t]=d(null),[a,s]=d("");C(()=>{h("/sessions").then(t,o=>s(o.message))},[]);const u=async o=>{o.preventDefault();const{agent:l,text:c}=o.target.elements;try{await close(),await open({agent:l.value});const n=session.peek()?.session,r=await say(`run ${c.value}`);if(!P("new"))return void(session.peek()?.session===n&&await close());r?.stop?location.hash=`#${D(r.session.thread_id)}/${r.session.seq??1}`:s(r?.error??said.peek())}catch(n){s(n.message)}};return i`<main class="wide"><h1>A new run, held at its first moment</h1>
    ${a&&i`<p class="bad" role="alert">${a}</p>`}
    ${e&&i`<form class="row-form" onSubmit=${u}>
      <label for="agent">Agent</label><select id="agent">${e.map(o=>i`<option>${o}</option>`)}</select>
      <label for="text">Message</label><input id="text" required autocomplete="off" placeholder="a message; for a graph, its input as JSON" />
      <button class="runs" disabled=${running.value||!k("run")}>Run, held</button></form>`}
  </main>`}export function Debugger({does:e}){const t=session.value;return i`<section class="debugger" aria-label="Debugger">
    <section aria-label="Stops">
      <h2>Breakpoints and watches</h2>
      <form class="row-form" onSubmit=${s=>{s.preventDefault(),e(`${s.target.elements.kind.value} ${s.target.elements.spec.value}`)}}>
        <select name="kind" aria-label="Kind of stop"><option>break</option><option>watch</option><option>catch</option><option>log</option></select>
        <label for="spec" class="sr">Breakpoint</label>
        <input id="spec" name="spec" required placeholder="tool:* if error" autocomplete="off" />
        <button>Set</button>
      </form>
      ${t&&t.breakpoints.length>0&&i`<ul>${t.breakpoints.map(s=>i`<li key=${s.number}>
        <code>${s.spec}</code> <span class="faint">${$(s.hits,"hit")}</span>
        <button aria-label=${`Delete breakpoint ${s.number}`} onClick=${()=>e(`delete ${s.number}`)}>Delete</button></li>`)}</ul>`}
    </section>
    <section aria-label="Run">
      <h2>${t?t.mode:"Run"}</h2>
      ${!b.value.length&&i`<${q} does=${e} held=${t?.held??!1} />`}
      <${O} tell=${async s=>{e(s),s!=="live"&&e("fork")}} />
      ${t&&t.executed.some(s=>s>0)&&i`<p>Really called: ${$(t.executed[0],"model")}, ${$(t.executed[1],"tool")}.</p>`}
    </section>
    <section aria-label="Commands"><h2>Console</h2><${K} does=${e} /></section>
  </section>`}
