/*f8f198f4*/
import{html as e,signal as m,useEffect as $,useState as u}from"./vendor/preact.js";import{ask as i,can as g}from"./api.js";import{Graph as _}from"./graph.js";import{counted as c,Value as d}from"./values.js";export const agents=m(null);const l=m("");export const loadAgents=()=>i("/agents").then(t=>(agents.value=t,l.value=""),t=>l.value=t.message),Beginnings=({all:t})=>e`<ul class="plain">${t.map(a=>e`<li key=${a.agent_id}><a class="button" href=${`#/new/${encodeURIComponent(a.agent_id)}`}>Chat with ${a.agent_id}</a></li>`)}</ul>`;export function Agents(){$(()=>{loadAgents()},[]);const t=agents.value;return e`<main class="page">
    <h1>Agents</h1>
    ${l.value&&e`<p class="bad" role="alert">${l.value}</p>`}
    ${!t&&!l.value&&e`<p class="faint" aria-busy="true">Loading the agents …</p>`}
    ${t?.length===0&&e`<p>No agent is served. <code>wick init</code> writes one, <code>wick ui module:name</code> serves one from Python.</p>`}
    <ul class="cards">${(t??[]).map(a=>e`<li key=${a.agent_id} class="card">
      <h2><a href=${`#/agents/${encodeURIComponent(a.agent_id)}`}>${a.agent_id}</a></h2>
      <p>${a.error||a.model}</p>
      <p class="faint">${[c(a.tools.length,"tool"),c(a.hooks.length,"hook"),a.subagents.length>0&&c(a.subagents.length,"sub-agent"),a.has_interrupt_on&&"asks for approval"].filter(r=>r).join(" · ")}</p>
      ${a.system_prompt&&e`<p class="faint prompt">${a.system_prompt}</p>`}
      ${g("run")&&e`<p><a class="button" href=${`#/new/${encodeURIComponent(a.agent_id)}`}>Start a chat<span class="sr"> with ${a.agent_id}</span></a></p>`}
    </li>`)}</ul>
  </main>`}export function Agent({agent:t}){const[a,r]=u(null),[h,f]=u(""),p=`/agents/${encodeURIComponent(t)}`;if($(()=>{Promise.all([i(p),i(`${p}/flow`)]).then(([s,y])=>r({info:s,flow:y}),s=>f(s.message))},[p]),h)return e`<main class="page"><p class="bad" role="alert">${h}</p><p><a href="#/agents">All agents</a></p></main>`;if(!a)return e`<main class="page" aria-busy="true"><p class="faint">Loading the agent …</p></main>`;const{info:o,flow:n}=a,b=Object.fromEntries(n.graph.nodes.flatMap(s=>Object.entries(s.facts)).filter(([,s])=>typeof s=="number"));return e`<main class="page wide-page">
    <h1>${t}</h1>
    <p class="line"><span>${o.model}</span> ${g("run")&&e`<a class="button" href=${`#/new/${encodeURIComponent(t)}`}>Start a chat</a>`}</p>
    ${o.system_prompt&&e`<p class="faint prompt">${o.system_prompt}</p>`}
    <h2>Limits</h2><${d} thread="" value=${b} />
    <h2>Tools</h2>
    ${!n.tools.length&&e`<p class="faint">It has none.</p>`}
    ${n.tools.map(s=>e`<details key=${s}><summary><code>${s}</code> <span class="faint">${n.schemas[s]?.properties?Object.keys(n.schemas[s].properties).join(", "):""}</span></summary>
      <${d} thread="" value=${n.schemas[s]??{}} /></details>`)}
    <h2>Hooks, the outermost first</h2>
    ${n.hooks.length?e`<ol>${n.hooks.map(s=>e`<li key=${s.name}><code>${s.name}</code> <span class="faint">${s.phases.join(", ")}</span></li>`)}</ol>`:e`<p class="faint">It has none.</p>`}
    ${o.subagents.length>0&&e`<h2>Sub-agents</h2><ul>${o.subagents.map(s=>e`<li><a href=${`#/agents/${encodeURIComponent(s)}`}>${s}</a></li>`)}</ul>`}
    <h2>Graph</h2>
    <${_} of=${p} node=${null} />
  </main>`}
