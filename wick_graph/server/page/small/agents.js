/*f2b3923bd63c68b6*/
import{html as t,signal as u,useEffect as $,useState as m}from"./vendor/preact.js";import{ask as i,who as g}from"./api.js";import{Graph as _}from"./graph.js";import{counted as c,Value as d}from"./values.js";export const agents=u(null);const l=u("");export const loadAgents=()=>i("/agents").then(e=>(agents.value=e,l.value=""),e=>l.value=e.message),Beginnings=({all:e})=>t`<ul class="plain">${e.map(a=>t`<li key=${a.agent_id}><a class="button" href=${`#/new/${encodeURIComponent(a.agent_id)}`}>Chat with ${a.agent_id}</a></li>`)}</ul>`;export function Agents(){$(()=>{loadAgents()},[]);const e=agents.value;return t`<main class="page">
    <h1>Agents</h1>
    ${l.value&&t`<p class="bad" role="alert">${l.value}</p>`}
    ${!e&&!l.value&&t`<p class="faint" aria-busy="true">Loading the agents …</p>`}
    <ul class="cards">${(e??[]).map(a=>t`<li key=${a.agent_id} class="card">
      <h2><a href=${`#/agents/${encodeURIComponent(a.agent_id)}`}>${a.agent_id}</a></h2>
      <p>${a.model}</p>
      <p class="faint">${[c(a.tools.length,"tool"),c(a.hooks.length,"hook"),a.subagents.length>0&&c(a.subagents.length,"sub-agent"),a.has_interrupt_on&&"asks for approval"].filter(r=>r).join(" · ")}</p>
      ${a.system_prompt&&t`<p class="faint prompt">${a.system_prompt}</p>`}
      ${g.value?.scopes.includes("run")&&t`<p><a class="button" href=${`#/new/${encodeURIComponent(a.agent_id)}`}>Start a chat<span class="sr"> with ${a.agent_id}</span></a></p>`}
    </li>`)}</ul>
  </main>`}export function Agent({agent:e}){const[a,r]=m(null),[h,f]=m(""),p=`/agents/${encodeURIComponent(e)}`;if($(()=>{Promise.all([i(p),i(`${p}/flow`)]).then(([s,y])=>r({info:s,flow:y}),s=>f(s.message))},[p]),h)return t`<main class="page"><p class="bad" role="alert">${h}</p><p><a href="#/agents">All agents</a></p></main>`;if(!a)return t`<main class="page" aria-busy="true"><p class="faint">Loading the agent …</p></main>`;const{info:o,flow:n}=a,b=Object.fromEntries(n.graph.nodes.flatMap(s=>Object.entries(s.facts)).filter(([,s])=>typeof s=="number"));return t`<main class="page wide-page">
    <h1>${e}</h1>
    <p class="line"><span>${o.model}</span> ${g.value?.scopes.includes("run")&&t`<a class="button" href=${`#/new/${encodeURIComponent(e)}`}>Start a chat</a>`}</p>
    ${o.system_prompt&&t`<p class="faint prompt">${o.system_prompt}</p>`}
    <h2>Limits</h2><${d} thread="" value=${b} />
    <h2>Tools</h2>
    ${!n.tools.length&&t`<p class="faint">It has none.</p>`}
    ${n.tools.map(s=>t`<details key=${s}><summary><code>${s}</code> <span class="faint">${n.schemas[s]?.properties?Object.keys(n.schemas[s].properties).join(", "):""}</span></summary>
      <${d} thread="" value=${n.schemas[s]??{}} /></details>`)}
    <h2>Hooks, the outermost first</h2>
    ${n.hooks.length?t`<ol>${n.hooks.map(s=>t`<li key=${s.name}><code>${s.name}</code> <span class="faint">${s.phases.join(", ")}</span></li>`)}</ol>`:t`<p class="faint">It has none.</p>`}
    ${o.subagents.length>0&&t`<h2>Sub-agents</h2><ul>${o.subagents.map(s=>t`<li><a href=${`#/agents/${encodeURIComponent(s)}`}>${s}</a></li>`)}</ul>`}
    <h2>Graph</h2>
    <${_} of=${p} node=${null} />
  </main>`}
