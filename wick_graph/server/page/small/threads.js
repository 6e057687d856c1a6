/*9f2f27c8*/
import{html as s,signal as v,useEffect as L,useState as c}from"./vendor/preact.js";import{agents as j,Beginnings as R,loadAgents as q}from"./agents.js";import{ask as y,can as M,current as P,send as K,signIn as O,threadPath as _}from"./api.js";import{listen as B}from"./stream.js";import{counted as $}from"./values.js";export function SignIn(){const[e,n]=c(""),[a,l]=c("");return s`<main class="sign-in">
    <form onSubmit=${o=>{o.preventDefault(),O(e.trim()).catch(t=>l(t.message))}}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${e}
        aria-describedby="said"
        onInput=${o=>n(o.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${a}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`}const u=v(null),h=v(""),C=v(!0),F=50;async function m(e=!1,n=Math.min(500,Math.max(F,u.peek()?.length??0))){const a=()=>e&&u.peek()||[];try{const l=await P(()=>y("/threads",{limit:n,...a().length>0&&{before:a().at(-1).last_access}}));u.value=[...a(),...l],C.value=l.length<n,h.value=""}catch(l){h.value=l.message}}const G={idle:"○ idle",running:"● running",waiting:"◆ waiting",failed:"✕ failed"};async function U(e){await K("DELETE",_(e)),u.value=(u.peek()??[]).filter(n=>n.thread_id!==e)}const D=e=>e?new Date(e).toLocaleString():"never";async function W(e){for(let n=0;e&&n<20&&!C.peek()&&!h.peek();n++)await m(!0,500)}function x({one:e,all:n,depth:a}){const[l,d]=c(!1),[o,t]=c(""),[i,A]=c(null),S=_(e.thread_id),f=e.title||e.thread_id,E=async()=>{const{last:r}=await y(`${S}/recording`).catch(()=>({last:0})),T=p=>r?y(`${S}/moments/${r}/state`,{path:p}).then(w=>w.value,()=>null):null,[b,k]=await Promise.all([T("usage"),T("cost")]),I=k&&Object.keys(k).length?`, ${Object.entries(k).filter(([,p])=>typeof p=="number").map(([p,w])=>`${p} ${w}`).join(", ")}`:", no price is known";A(b?`${$(b.total_tokens??0,"token")} in ${$(b.calls??0,"call")}${I}`:"not recorded")},g=a<5?n.filter(r=>r.parent===e.thread_id):[];return s`<li>
    <div class="row">
      <a class="name" href=${`#/chat/${encodeURIComponent(e.thread_id)}`}>${f}</a>
      <span class=${`status ${e.status}`}>${G[e.status]??e.status}</span>
      <p class="faint">
        ${[e.agent,$(e.steps,"checkpoint"),`used ${D(e.last_access)}`,e.pinned?"pinned":`expires ${D(e.expires_at)}`,i].filter(r=>r).join(" · ")}
      </p>
      <p class="line">
        ${l?s`<span>Delete it for good?</span> <button class="danger" ref=${r=>r?.focus()} onClick=${()=>U(e.thread_id).catch(r=>t(r.message))}>Delete</button> <button onClick=${()=>d(!1)}>Keep</button>`:s`<a href=${`#${_(e.thread_id)}`} aria-label=${`Run of ${f}`}>Run</a>
              ${i===null&&s`<button class="quiet" aria-label=${`Cost of ${f}`} onClick=${E}>Cost</button>`}
              ${M("run")&&s`<button class="quiet" aria-label=${`Delete ${f}`} onClick=${()=>d(!0)}>Delete …</button>`}`}
        <span class="bad" role="alert">${o}</span>
      </p>
      ${e.last_error&&s`<p class="bad">${e.last_error}</p>`}
    </div>
    ${g.length>0&&s`<details><summary>${$(g.length,"thread")} below</summary><ul>${g.map(r=>s`<${x} key=${r.thread_id} one=${r} all=${n} depth=${a+1} />`)}</ul></details>`}
  </li>`}export function Threads(){const[e,n]=c("");L(()=>{m(),q();let t=0;const i=B(()=>(clearTimeout(t),t=setTimeout(()=>m(),500)));return()=>(clearTimeout(t),i())},[]);const a=u.value;if(h.value)return s`<main class="page"><p class="bad" role="alert">${h.value}</p></main>`;if(a===null)return s`<main class="page" aria-busy="true"><p class="faint">Loading the threads …</p></main>`;const l=e.toLowerCase().split(/\s+/).filter(t=>t),d=new Set(a.map(t=>t.thread_id)),o=l.length?a.filter(t=>l.every(i=>`${t.title} ${t.thread_id} ${t.agent} ${t.status}`.toLowerCase().includes(i))):a.filter(t=>!d.has(t.parent));return s`<main class="page threads">
    <h1>Threads</h1>
    ${!a.length&&s`<p>There are no threads yet. A chat makes one:</p><${R} all=${j.value??[]} />`}
    ${a.length>0&&s`<form class="row-form" role="search" onSubmit=${t=>t.preventDefault()}>
      <label for="find">Find</label>
      <input id="find" type="search" autocomplete="off" placeholder="title, id, agent or status" value=${e} onInput=${t=>(n(t.target.value),W(t.target.value))} />
      <span role="status" class="faint">${l.length>0&&$(o.length,"thread")}</span>
    </form>`}
    <ul>${o.map(t=>s`<${x} key=${t.thread_id} one=${t} all=${l.length?[]:a} depth=${0} />`)}</ul>
    ${!C.value&&s`<button onClick=${()=>m(!0)}>Show older threads</button>`}
  </main>`}
