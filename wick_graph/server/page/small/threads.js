/*dcddf0131cc3efcb*/
import{html as s,signal as v,useEffect as E,useState as u}from"./vendor/preact.js";import{agents as L,Beginnings as j,loadAgents as U}from"./agents.js";import{ask as y,send as q,signIn as M,who as K}from"./api.js";import{listen as O}from"./stream.js";import{counted as $}from"./values.js";export function SignIn(){const[e,n]=u(""),[a,l]=u("");return s`<main class="sign-in">
    <form onSubmit=${i=>{i.preventDefault(),M(e.trim()).catch(t=>l(t.message))}}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${e}
        aria-describedby="said"
        onInput=${i=>n(i.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${a}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`}const d=v(null),h=v(""),_=v(!0),P=50;let C=0;async function f(e=[],n=Math.min(500,Math.max(P,d.peek()?.length??0))){const a=e.at(-1),l=C;try{const r=await y("/threads",{limit:n,...a&&{before:a.last_access}});if(l!==C)return f();d.value=[...e,...r],_.value=r.length<n,h.value=""}catch(r){h.value=r.message}}const B={idle:"○ idle",running:"● running",waiting:"◆ waiting",failed:"✕ failed"};async function F(e){await q("DELETE",`/threads/${encodeURIComponent(e)}`),C+=1,d.value=(d.peek()??[]).filter(n=>n.thread_id!==e)}const D=e=>e?new Date(e).toLocaleString():"never";async function G(e){for(let n=0;e&&n<20&&!_.peek()&&!h.peek();n++)await f(d.peek()??[],500)}function I({one:e,all:n,depth:a}){const[l,r]=u(!1),[i,t]=u(""),[c,R]=u(null),S=`/threads/${encodeURIComponent(e.thread_id)}`,m=e.title||e.thread_id,x=async()=>{const{last:o}=await y(`${S}/recording`).catch(()=>({last:0})),T=p=>o?y(`${S}/moments/${o}/state`,{path:p}).then(w=>w.value,()=>null):null,[b,k]=await Promise.all([T("usage"),T("cost")]),A=k&&Object.keys(k).length?`, ${Object.entries(k).filter(([,p])=>typeof p=="number").map(([p,w])=>`${p} ${w}`).join(", ")}`:", no price is known";R(b?`${$(b.total_tokens??0,"token")} in ${$(b.calls??0,"call")}${A}`:"not recorded")},g=a<5?n.filter(o=>o.parent===e.thread_id):[];return s`<li>
    <div class="row">
      <a class="name" href=${`#/chat/${encodeURIComponent(e.thread_id)}`}>${m}</a>
      <span class=${`status ${e.status}`}>${B[e.status]??e.status}</span>
      <p class="faint">
        ${[e.agent,$(e.steps,"checkpoint"),`used ${D(e.last_access)}`,e.pinned?"pinned":`expires ${D(e.expires_at)}`,c].filter(o=>o).join(" · ")}
      </p>
      <p class="line">
        ${l?s`<span>Delete it for good?</span> <button class="danger" ref=${o=>o?.focus()} onClick=${()=>F(e.thread_id).catch(o=>t(o.message))}>Delete</button> <button onClick=${()=>r(!1)}>Keep</button>`:s`<a href=${`#/threads/${encodeURIComponent(e.thread_id)}`} aria-label=${`Run of ${m}`}>Run</a>
              ${c===null&&s`<button class="quiet" aria-label=${`Cost of ${m}`} onClick=${x}>Cost</button>`}
              ${K.value?.scopes.includes("run")&&s`<button class="quiet" aria-label=${`Delete ${m}`} onClick=${()=>r(!0)}>Delete …</button>`}`}
        <span class="bad" role="alert">${i}</span>
      </p>
      ${e.last_error&&s`<p class="bad">${e.last_error}</p>`}
    </div>
    ${g.length>0&&s`<details><summary>${$(g.length,"thread")} below</summary><ul>${g.map(o=>s`<${I} key=${o.thread_id} one=${o} all=${n} depth=${a+1} />`)}</ul></details>`}
  </li>`}export function Threads(){const[e,n]=u("");E(()=>{f(),U();let t=0;const c=O(()=>(clearTimeout(t),t=setTimeout(()=>f(),500)));return()=>(clearTimeout(t),c())},[]);const a=d.value;if(h.value)return s`<main class="page"><p class="bad" role="alert">${h.value}</p></main>`;if(a===null)return s`<main class="page" aria-busy="true"><p class="faint">Loading the threads …</p></main>`;const l=e.toLowerCase().split(/\s+/).filter(t=>t),r=new Set(a.map(t=>t.thread_id)),i=l.length?a.filter(t=>l.every(c=>`${t.title} ${t.thread_id} ${t.agent} ${t.status}`.toLowerCase().includes(c))):a.filter(t=>!r.has(t.parent));return s`<main class="page threads">
    <h1>Threads</h1>
    ${!a.length&&s`<p>There are no threads yet. A chat makes one:</p><${j} all=${L.value??[]} />`}
    ${a.length>0&&s`<form class="row-form" role="search" onSubmit=${t=>t.preventDefault()}>
      <label for="find">Find</label>
      <input id="find" type="search" autocomplete="off" placeholder="title, id, agent or status" value=${e} onInput=${t=>(n(t.target.value),G(t.target.value))} />
      <span role="status" class="faint">${l.length>0&&$(i.length,"thread")}</span>
    </form>`}
    <ul>${i.map(t=>s`<${I} key=${t.thread_id} one=${t} all=${l.length?[]:a} depth=${0} />`)}</ul>
    ${!_.value&&s`<button onClick=${()=>f(a)}>Show older threads</button>`}
  </main>`}
