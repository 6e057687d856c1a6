/*e5572245*/
import{html as r,useState as p}from"./vendor/preact.js";import{ask as a}from"./api.js";export const counted=(e,t)=>`${e.toLocaleString("en")} ${t}${e===1?"":"s"}`,plain=e=>e.replace(/[^\P{C}\n\r\t\u200d]/gu,t=>`\\u{${t.codePointAt(0)?.toString(16)}}`);export function took(e){return e===null?"":e>=1e6?`${(e/1e6).toFixed(2)} s`:`${(e/1e3).toFixed(1)} ms`}function m({thread:e,cut:t}){const[n,o]=p(t.$text),[s,i]=p(""),$=()=>a(`/threads/${e}/blobs/${t.$blob}`,{offset:n.length}).then(c=>o(n+c.text),c=>i(c.message));return r`<div>
    <pre>${plain(n)}</pre>
    <p class="faint">
      ${n.length.toLocaleString("en")} of ${counted(t.$chars,"character")}
      ${n.length<t.$chars&&r` <button onClick=${$}>Show more</button>`} ${s}
    </p>
  </div>`}const d=e=>typeof e?.role=="string"&&"content"in e&&(e.tool_calls===void 0||Array.isArray(e.tool_calls)&&e.tool_calls.every(t=>t&&typeof t=="object")),f=e=>typeof e=="string"?e:"",b=e=>/^[0-9a-f]{64}$/.test(e.$blob)&&typeof e.$text=="string"&&typeof e.$chars=="number";function l({thread:e,value:t}){return r`<div class="message">
    <b>${t.role}</b> ${f(t.name)}
    <${Value} thread=${e} value=${t.content} />
    ${(t.tool_calls??[]).map(n=>r`<div class="call">
        → <b>${f(n.name)||"and"}</b> <${Value} thread=${e} value=${n.args??n} />
      </div>`)}
  </div>`}export function Value({thread:e,value:t,depth:n=0}){if(typeof t=="string")return r`<pre>${plain(t)||'""'}</pre>`;if(t===null||typeof t!="object")return r`<pre>${JSON.stringify(t)}</pre>`;if(b(t))return r`<${m} thread=${e} cut=${t} />`;if(d(t))return r`<${l} thread=${e} value=${t} />`;const o=Object.entries(t);if(!o.length)return r`<pre>${Array.isArray(t)?"[]":"{}"}</pre>`;if(typeof t.$more=="number"&&o.length===1)return r`<p class="faint">and ${t.$more.toLocaleString("en")} more</p>`;if(typeof t.$size=="number"&&o.length===1)return r`<p class="faint">${counted(t.$size,"item")}; name its path to see them</p>`;const s=r`<table>
    <tbody>
      ${o.map(([i,$])=>r`<tr key=${i}>
          <th scope="row">${plain(i)}</th>
          <td><${Value} thread=${e} value=${$} depth=${n+1} /></td>
        </tr>`)}
    </tbody>
  </table>`;return n<2?s:r`<details><summary>${counted(o.length,Array.isArray(t)?"item":"field")}</summary>${s}</details>`}
