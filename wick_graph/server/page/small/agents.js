/*a8775563*/
import{html as a,signal as m,useEffect as $,useState as u}from"./vendor/preact.js";import{ask as r,can as g}from"./api.js";import{Graph as _}from"./graph.js";import{counted as c,Value as d}from"./values.js";export const agents=m(null);const l=m("");export const loadAgents=()=>r("/agents").then(t=>(agents.value=t,l.value=""),t=>l.value=t.message),Beginnings=({all:t})=>a`<ul class="plain">${t.map(e=>a`<li key=${e.agent_id}><a class="button" href=${`#/new/${encodeURIComponent(e.agent_id)}`}>Chat with ${e.agent_id}</a></li>`)}</ul>`;export function Agents(){$(()=>{loadAgents()},[]);const t=agents.value;return a`<main class="page">
    <h1>Agents</h1>
    ${l.value&&a`<p class="bad" role="alert">${l.value}</p>`}
    ${!t&&!l.value&&a`<p class="faint" aria-busy="true">Loading the agents …</p>`}
    ${t?.length===0&&a`<p>No agent is served. <code>wick init</code> writes a first one, <code>wick ui module:name</code> serves one made in Python.</p>`}
    <ul class="cards">${(t??[]).map(e=>a`<li key=${e.agent_id} class="card">
      <h2><a href=${`#/agents/${encodeURIComponent(e.agent_id)}`}>${e.agent_id}</a></h2>
      <p>${e.model}</p>
      <p class="faint">${[c(e.tools.length,"tool"),c(e.hooks.length,"hook"),e.subagents.length>0&&c(e.subagents.length,"sub-agent"),e.has_interrupt_on&&"asks for approval"].filter(i=>i).join(" · ")}</p>
      ${e.system_prompt&&a`<p class="faint prompt">${e.system_prompt}</p>`}
      ${g("run")&&a`<p><a class="button" href=${`#/new/${encodeURIComponent(e.agent_id)}`}>Start a chat<span class="sr"> with ${e.agent_id}</span></a></p>`}
    </li>`)}</ul>
  </main>`}export function Agent({agent:t}){const[e,i]=u(null),[h,f]=u(""),p=`/agents/${encodeURIComponent(t)}`;if($(()=>{Promise.all([r(p),r(`${p}/flow`)]).then(([s,y])=>i({info:s,flow:y}),s=>f(s.message))},[p]),h)return a`<main class="page"><p class="bad" role="alert">${h}</p><p><a href="#/agents">All agents</a></p></main>`;if(!e)return a`<main class="page" aria-busy="true"><p class="faint">Loading the agent …</p></main>`;const{info:o,flow:n}=e,b=Object.fromEntries(n.graph.nodes.flatMap(s=>Object.entries(s.facts)).filter(([,s])=>typeof s=="number"));return a`<main class="page wide-page">
    <h1>${t}</h1>
    <p class="line"><span>${o.model}</span> ${g("run")&&a`<a class="button" href=${`#/new/${encodeURIComponent(t)}`}>Start a chat</a>`}</p>
    ${o.system_prompt&&a`<p class="faint prompt">${o.system_prompt}</p>`}
    <h2>Limits</h2><${d} thread="" value=${b} />
    <h2>Tools</h2>
    ${!n.tools.length&&a`<p class="faint">It has none.</p>`}
    ${n.tools.map(s=>a`<details key=${s}><summary><code>${s}</code> <span class="faint">${n.schemas[s]?.properties?Object.keys(n.schemas[s].properties).join(", "):""}</span></summary>
      <${d} thread="" value=${n.schemas[s]??{}} /></details>`)}
    <h2>Hooks, the outermost first</h2>
    ${n.hooks.length?a`<ol>${n.hooks.map(s=>a`<li key=${s.name}><code>${s.name}</code> <span class="faint">${s.phases.join(", ")}</span></li>`)}</ol>`:a`<p class="faint">It has none.</p>`}
    ${o.subagents.length>0&&a`<h2>Sub-agents</h2><ul>${o.subagents.map(s=>a`<li><a href=${`#/agents/${encodeURIComponent(s)}`}>${s}</a></li>`)}</ul>`}
    <h2>Graph</h2>
    <${_} of=${p} node=${null} />
  </main>`}
