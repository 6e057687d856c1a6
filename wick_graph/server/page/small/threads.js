/*2845db64ee091625*/
import{html as s,signal as y,useEffect as R,useState as c}from"./vendor/preact.js";import{agents as L,Beginnings as j,loadAgents as q}from"./agents.js";import{ask as _,send as M,signIn as U,who as K}from"./api.js";import{listen as O}from"./stream.js";import{counted as $}from"./values.js";export function SignIn(){const[e,o]=c(""),[a,l]=c("");return s`<main class="sign-in">
    <form onSubmit=${r=>{r.preventDefault(),U(e.trim()).catch(t=>l(t.message))}}>
      <h1>Sign in</h1>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" required value=${e}
        aria-describedby="said"
        onInput=${r=>o(r.target.value)} />
      <button class="main">Sign in</button>
      <p id="said" class="bad" role="alert">${a}</p>
      <p class="faint">
        <code>wick token create</code> makes a token; <code>wick ui</code> opens this page without one.
      </p>
    </form>
  </main>`}const u=y(null),h=y(""),C=y(!0),P=50;async function m(e=[],o=Math.min(500,Math.max(P,u.peek()?.length??0))){const a=e.at(-1);try{const l=await _("/threads",{limit:o,...a&&{before:a.last_access}});u.value=[...e,...l],C.value=l.length<o,h.value=""}catch(l){h.value=l.message}}const B={idle:"○ idle",running:"● running",waiting:"◆ waiting",failed:"✕ failed"},T=e=>e?new Date(e).toLocaleString():"never";async function F(e){for(let o=0;e&&o<20&&!C.peek()&&!h.peek();o++)await m(u.peek()??[],500)}function D({one:e,all:o,depth:a}){const[l,d]=c(!1),[r,t]=c(""),[i,I]=c(null),g=`/threads/${encodeURIComponent(e.thread_id)}`,f=e.title||e.thread_id,x=()=>M("DELETE",g).then(()=>u.value=(u.peek()??[]).filter(n=>n!==e),n=>t(n.message)),A=async()=>{const{last:n}=await _(`${g}/recording`).catch(()=>({last:0})),S=p=>n?_(`${g}/moments/${n}/state`,{path:p}).then(v=>v.value,()=>null):null,[k,w]=await Promise.all([S("usage"),S("cost")]),E=w&&Object.keys(w).length?`, ${Object.entries(w).filter(([,p])=>typeof p=="number").map(([p,v])=>`${p} ${v}`).join(", ")}`:", no price is known";I(k?`${$(k.total_tokens??0,"token")} in ${$(k.calls??0,"call")}${E}`:"not recorded")},b=a<5?o.filter(n=>n.parent===e.thread_id):[];return s`<li>
    <div class="row">
      <a class="name" href=${`#/chat/${encodeURIComponent(e.thread_id)}`}>${f}</a>
      <span class=${`status ${e.status}`}>${B[e.status]??e.status}</span>
      <p class="faint">
        ${[e.agent,$(e.steps,"checkpoint"),`used ${T(e.last_access)}`,e.pinned?"pinned":`expires ${T(e.expires_at)}`,i].filter(n=>n).join(" · ")}
      </p>
      <p class="line">
        ${l?s`<span>Delete it for good?</span> <button class="danger" ref=${n=>n?.focus()} onClick=${x}>Delete</button> <button onClick=${()=>d(!1)}>Keep</button>`:s`<a href=${`#/threads/${encodeURIComponent(e.thread_id)}`} aria-label=${`Run of ${f}`}>Run</a>
              ${i===null&&s`<button class="quiet" aria-label=${`Cost of ${f}`} onClick=${A}>Cost</button>`}
              ${K.value?.scopes.includes("run")&&s`<button class="quiet" aria-label=${`Delete ${f}`} onClick=${()=>d(!0)}>Delete …</button>`}`}
        <span class="bad" role="alert">${r}</span>
      </p>
      ${e.last_error&&s`<p class="bad">${e.last_error}</p>`}
    </div>
    ${b.length>0&&s`<details><summary>${$(b.length,"thread")} below</summary><ul>${b.map(n=>s`<${D} key=${n.thread_id} one=${n} all=${o} depth=${a+1} />`)}</ul></details>`}
  </li>`}export function Threads(){const[e,o]=c("");R(()=>{m(),q();let t=0;const i=O(()=>(clearTimeout(t),t=setTimeout(()=>m(),500)));return()=>(clearTimeout(t),i())},[]);const a=u.value;if(h.value)return s`<main class="page"><p class="bad" role="alert">${h.value}</p></main>`;if(a===null)return s`<main class="page" aria-busy="true"><p class="faint">Loading the threads …</p></main>`;const l=e.toLowerCase().split(/\s+/).filter(t=>t),d=new Set(a.map(t=>t.thread_id)),r=l.length?a.filter(t=>l.every(i=>`${t.title} ${t.thread_id} ${t.agent} ${t.status}`.toLowerCase().includes(i))):a.filter(t=>!d.has(t.parent));return s`<main class="page threads">
    <h1>Threads</h1>
    ${!a.length&&s`<p>There are no threads yet. A chat makes one:</p><${j} all=${L.value??[]} />`}
    ${a.length>0&&s`<form class="row-form" role="search" onSubmit=${t=>t.preventDefault()}>
      <label for="find">Find</label>
      <input id="find" type="search" autocomplete="off" placeholder="title, id, agent or status" value=${e} onInput=${t=>(o(t.target.value),F(t.target.value))} />
      <span role="status" class="faint">${l.length>0&&$(r.length,"thread")}</span>
    </form>`}
    <ul>${r.map(t=>s`<${D} key=${t.thread_id} one=${t} all=${l.length?[]:a} depth=${0} />`)}</ul>
    ${!C.value&&s`<button onClick=${()=>m(a)}>Show older threads</button>`}
  </main>`}
