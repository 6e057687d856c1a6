/*0241a4bd*/
import{html as r,useState as f}from"./vendor/preact.js";import{ask as a}from"./api.js";export const counted=(e,t)=>`${e.toLocaleString("en")} ${t}${e===1?"":"s"}`;export function took(e){return e===null?"":e>=1e6?`${(e/1e6).toFixed(2)} s`:`${(e/1e3).toFixed(1)} ms`}function m({thread:e,cut:t}){const[n,o]=f(t.$text),[$,c]=f(""),i=()=>a(`/threads/${e}/blobs/${t.$blob}`,{offset:n.length}).then(s=>o(n+s.text),s=>c(s.message));return r`<div>
    <pre>${n}</pre>
    <p class="faint">
      ${n.length.toLocaleString("en")} of ${counted(t.$chars,"character")}
      ${n.length<t.$chars&&r` <button onClick=${i}>Show more</button>`} ${$}
    </p>
  </div>`}const d=e=>typeof e?.role=="string"&&"content"in e&&(e.tool_calls===void 0||Array.isArray(e.tool_calls)&&e.tool_calls.every(t=>t&&typeof t=="object")),p=e=>typeof e=="string"?e:"",b=e=>/^[0-9a-f]{64}$/.test(e.$blob)&&typeof e.$text=="string"&&typeof e.$chars=="number";function h({thread:e,value:t}){return r`<div class="message">
    <b>${t.role}</b> ${p(t.name)}
    <${Value} thread=${e} value=${t.content} />
    ${(t.tool_calls??[]).map(n=>r`<div class="call">
        → <b>${p(n.name)||"and"}</b> <${Value} thread=${e} value=${n.args??n} />
      </div>`)}
  </div>`}export function Value({thread:e,value:t,depth:n=0}){if(typeof t=="string")return r`<pre>${t===""?'""':t}</pre>`;if(t===null||typeof t!="object")return r`<pre>${JSON.stringify(t)}</pre>`;if(b(t))return r`<${m} thread=${e} cut=${t} />`;if(d(t))return r`<${h} thread=${e} value=${t} />`;const o=Object.entries(t);if(!o.length)return r`<pre>${Array.isArray(t)?"[]":"{}"}</pre>`;if(typeof t.$more=="number"&&o.length===1)return r`<p class="faint">and ${t.$more.toLocaleString("en")} more</p>`;if(typeof t.$size=="number"&&o.length===1)return r`<p class="faint">${counted(t.$size,"item")}; name its path to see them</p>`;const $=r`<table>
    <tbody>
      ${o.map(([i,s])=>r`<tr key=${i}>
          <th scope="row">${i}</th>
          <td><${Value} thread=${e} value=${s} depth=${n+1} /></td>
        </tr>`)}
    </tbody>
  </table>`;if(n<2)return $;const c=Array.isArray(t)?counted(o.length,"item"):counted(o.length,"field");return r`<details><summary>${c}</summary>${$}</details>`}
