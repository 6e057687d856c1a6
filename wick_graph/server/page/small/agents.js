/*a90f357b*/
import{html as e,signal as u,useEffect as m,useState as $}from"./vendor/preact.js";import{ask as r,who as d}from"./api.js";import{Graph as y}from"./graph.js";import{counted as c,Value as g}from"./values.js";export const agents=u(null);const l=u("");export const loadAgents=()=>r("/agents").then(t=>(agents.value=t,l.value=""),t=>l.value=t.message),Beginnings=({all:t})=>e`<ul class="plain">${t.map(s=>e`<li key=${s.agent_id}><a class="button" href=${`#/new/${encodeURIComponent(s.agent_id)}`}>Chat with ${s.agent_id}</a></li>`)}</ul>`;export function Agents(){m(()=>{loadAgents()},[]);const t=agents.value;return e`<main class="page">
    <h1>Agents</h1>
    ${l.value&&e`<p class="bad" role="alert">${l.value}</p>`}
    ${!t&&!l.value&&e`<p class="faint" aria-busy="true">Loading the agents …</p>`}
    ${t?.length===0&&e`<p>No agent is served. <code>wick init</code> writes a first one, <code>wick ui module:name</code> serves one made in Python.</p>`}
    <ul class="cards">${(t??[]).map(s=>e`<li key=${s.agent_id} class="card">
      <h2><a href=${`#/agents/${encodeURIComponent(s.agent_id)}`}>${s.agent_id}</a></h2>
      <p>${s.model}</p>
      <p class="faint">${[c(s.tools.length,"tool"),c(s.hooks.length,"hook"),s.subagents.length>0&&c(s.subagents.length,"sub-agent"),s.has_interrupt_on&&"asks for approval"].filter(i=>i).join(" · ")}</p>
      ${s.system_prompt&&e`<p class="faint prompt">${s.system_prompt}</p>`}
      ${d.value?.scopes.includes("run")&&e`<p><a class="button" href=${`#/new/${encodeURIComponent(s.agent_id)}`}>Start a chat<span class="sr"> with ${s.agent_id}</span></a></p>`}
    </li>`)}</ul>
  </main>`}export function Agent({agent:t}){const[s,i]=$(null),[h,f]=$(""),p=`/agents/${encodeURIComponent(t)}`;if(m(()=>{Promise.all([r(p),r(`${p}/flow`)]).then(([a,v])=>i({info:a,flow:v}),a=>f(a.message))},[p]),h)return e`<main class="page"><p class="bad" role="alert">${h}</p><p><a href="#/agents">All agents</a></p></main>`;if(!s)return e`<main class="page" aria-busy="true"><p class="faint">Loading the agent …</p></main>`;const{info:o,flow:n}=s,b=Object.fromEntries(n.graph.nodes.flatMap(a=>Object.entries(a.facts)).filter(([,a])=>typeof a=="number"));return e`<main class="page wide-page">
    <h1>${t}</h1>
    <p class="line"><span>${o.model}</span> ${d.value?.scopes.includes("run")&&e`<a class="button" href=${`#/new/${encodeURIComponent(t)}`}>Start a chat</a>`}</p>
    ${o.system_prompt&&e`<p class="faint prompt">${o.system_prompt}</p>`}
    <h2>Limits</h2><${g} thread="" value=${b} />
    <h2>Tools</h2>
    ${!n.tools.length&&e`<p class="faint">It has none.</p>`}
    ${n.tools.map(a=>e`<details key=${a}><summary><code>${a}</code> <span class="faint">${n.schemas[a]?.properties?Object.keys(n.schemas[a].properties).join(", "):""}</span></summary>
      <${g} thread="" value=${n.schemas[a]??{}} /></details>`)}
    <h2>Hooks, the outermost first</h2>
    ${n.hooks.length?e`<ol>${n.hooks.map(a=>e`<li key=${a.name}><code>${a.name}</code> <span class="faint">${a.phases.join(", ")}</span></li>`)}</ol>`:e`<p class="faint">It has none.</p>`}
    ${o.subagents.length>0&&e`<h2>Sub-agents</h2><ul>${o.subagents.map(a=>e`<li><a href=${`#/agents/${encodeURIComponent(a)}`}>${a}</a></li>`)}</ul>`}
    <h2>Graph</h2>
    <${y} of=${p} node=${null} />
  </main>`}
