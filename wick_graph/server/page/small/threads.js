/*ebaaa4bc74ed4af5*/
import{html as s,signal as v,useEffect as A,useState as c}from"./vendor/preact.js";import{agents as E,Beginnings as L,loadAgents as j}from"./agents.js";import{ask as y,current as U,send as q,signIn as M,who as K}from"./api.js";import{listen as O}from"./stream.js";import{counted as $}from"./values.js";export function SignIn(){const[e,n]=c(""),[a,o]=c("");return s`<main class="sign-in">
    <form onSubmit=${r=>{r.preventDefault(),M(e.trim()).catch(t=>o(t.message))}}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${e}
        aria-describedby="said"
        onInput=${r=>n(r.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${a}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`}const u=v(null),h=v(""),_=v(!0),P=50;async function m(e=!1,n=Math.min(500,Math.max(P,u.peek()?.length??0))){const a=()=>e&&u.peek()||[];try{const o=await U(()=>y("/threads",{limit:n,...a().length>0&&{before:a().at(-1).last_access}}));u.value=[...a(),...o],_.value=o.length<n,h.value=""}catch(o){h.value=o.message}}const B={idle:"○ idle",running:"● running",waiting:"◆ waiting",failed:"✕ failed"};async function F(e){await q("DELETE",`/threads/${encodeURIComponent(e)}`),u.value=(u.peek()??[]).filter(n=>n.thread_id!==e)}const T=e=>e?new Date(e).toLocaleString():"never";async function G(e){for(let n=0;e&&n<20&&!_.peek()&&!h.peek();n++)await m(!0,500)}function D({one:e,all:n,depth:a}){const[o,d]=c(!1),[r,t]=c(""),[i,I]=c(null),C=`/threads/${encodeURIComponent(e.thread_id)}`,f=e.title||e.thread_id,R=async()=>{const{last:l}=await y(`${C}/recording`).catch(()=>({last:0})),S=p=>l?y(`${C}/moments/${l}/state`,{path:p}).then(w=>w.value,()=>null):null,[b,k]=await Promise.all([S("usage"),S("cost")]),x=k&&Object.keys(k).length?`, ${Object.entries(k).filter(([,p])=>typeof p=="number").map(([p,w])=>`${p} ${w}`).join(", ")}`:", no price is known";I(b?`${$(b.total_tokens??0,"token")} in ${$(b.calls??0,"call")}${x}`:"not recorded")},g=a<5?n.filter(l=>l.parent===e.thread_id):[];return s`<li>
    <div class="row">
      <a class="name" href=${`#/chat/${encodeURIComponent(e.thread_id)}`}>${f}</a>
      <span class=${`status ${e.status}`}>${B[e.status]??e.status}</span>
      <p class="faint">
        ${[e.agent,$(e.steps,"checkpoint"),`used ${T(e.last_access)}`,e.pinned?"pinned":`expires ${T(e.expires_at)}`,i].filter(l=>l).join(" · ")}
      </p>
      <p class="line">
        ${o?s`<span>Delete it for good?</span> <button class="danger" ref=${l=>l?.focus()} onClick=${()=>F(e.thread_id).catch(l=>t(l.message))}>Delete</button> <button onClick=${()=>d(!1)}>Keep</button>`:s`<a href=${`#/threads/${encodeURIComponent(e.thread_id)}`} aria-label=${`Run of ${f}`}>Run</a>
              ${i===null&&s`<button class="quiet" aria-label=${`Cost of ${f}`} onClick=${R}>Cost</button>`}
              ${K.value?.scopes.includes("run")&&s`<button class="quiet" aria-label=${`Delete ${f}`} onClick=${()=>d(!0)}>Delete …</button>`}`}
        <span class="bad" role="alert">${r}</span>
      </p>
      ${e.last_error&&s`<p class="bad">${e.last_error}</p>`}
    </div>
    ${g.length>0&&s`<details><summary>${$(g.length,"thread")} below</summary><ul>${g.map(l=>s`<${D} key=${l.thread_id} one=${l} all=${n} depth=${a+1} />`)}</ul></details>`}
  </li>`}export function Threads(){const[e,n]=c("");A(()=>{m(),j();let t=0;const i=O(()=>(clearTimeout(t),t=setTimeout(()=>m(),500)));return()=>(clearTimeout(t),i())},[]);const a=u.value;if(h.value)return s`<main class="page"><p class="bad" role="alert">${h.value}</p></main>`;if(a===null)return s`<main class="page" aria-busy="true"><p class="faint">Loading the threads …</p></main>`;const o=e.toLowerCase().split(/\s+/).filter(t=>t),d=new Set(a.map(t=>t.thread_id)),r=o.length?a.filter(t=>o.every(i=>`${t.title} ${t.thread_id} ${t.agent} ${t.status}`.toLowerCase().includes(i))):a.filter(t=>!d.has(t.parent));return s`<main class="page threads">
    <h1>Threads</h1>
    ${!a.length&&s`<p>There are no threads yet. A chat makes one:</p><${L} all=${E.value??[]} />`}
    ${a.length>0&&s`<form class="row-form" role="search" onSubmit=${t=>t.preventDefault()}>
      <label for="find">Find</label>
      <input id="find" type="search" autocomplete="off" placeholder="title, id, agent or status" value=${e} onInput=${t=>(n(t.target.value),G(t.target.value))} />
      <span role="status" class="faint">${o.length>0&&$(r.length,"thread")}</span>
    </form>`}
    <ul>${r.map(t=>s`<${D} key=${t.thread_id} one=${t} all=${o.length?[]:a} depth=${0} />`)}</ul>
    ${!_.value&&s`<button onClick=${()=>m(!0)}>Show older threads</button>`}
  </main>`}
