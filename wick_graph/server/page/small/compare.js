/*ec9006c3fed744e8*/
import{html as n,useEffect as C,useState as p}from"./vendor/preact.js";import{ask as x}from"./api.js";import{counted as v}from"./values.js";export function Compare({parts:[s,r,o,l]}){const[t,m]=p(null),[f,u]=p(""),[d,h]=p(!1);C(()=>{const e=new AbortController;m(null);const a={run:r,theirs:l,...o===s?{}:{other:o}};return x(`/threads/${encodeURIComponent(s)}/compare`,a,e.signal).then(m,c=>e.signal.aborted||u(c.message)),()=>e.abort()},[s,r,o,l]);const i=n`<h1>Compare</h1>
    <form class="row-form" onSubmit=${e=>{e.preventDefault();const[a,c]=["a","b"].map(k=>e.target.elements[k].value.trim().split("/").map(encodeURIComponent));location.hash=`#/compare/${a[0]}/${a[1]||1}/${c[0]}/${c[1]||1}`}}>
      <label for="a">Thread and run</label><input id="a" required value=${s?`${s}/${r}`:""} placeholder="th_…/1" />
      <label for="b">with</label><input id="b" required value=${o?`${o}/${l}`:""} placeholder="th_…-fork1/2" /><button>Compare</button>
    </form>`;if(!s)return n`<main class="wide">${i}</main>`;if(f)return n`<main class="wide">${i}<p class="bad" role="alert">${f}</p></main>`;if(!t)return n`<main class="wide" aria-busy="true">${i}<p class="faint">Loading …</p></main>`;const $=t.rows.findIndex(e=>!e.same),g=t.rows.map((e,a)=>({row:e,at:a})).filter(e=>d||$<0||!e.row.same||Math.abs(e.at-$)<3),b=(e,a)=>`${a>=e?"+":"−"}${Math.abs(a-e).toLocaleString("en",{maximumFractionDigits:3})}`;return n`<main class="wide">${i}
    <p class=${t.first?"note bad":"note"}>${t.first?`First difference: ${t.first}`:"Both did the same."}</p>
    <p>Tokens ${t.tokens[0].toLocaleString("en")} and ${t.tokens[1].toLocaleString("en")} (${b(t.tokens[0],t.tokens[1])}),
      seconds ${t.seconds[0].toFixed(3)} and ${t.seconds[1].toFixed(3)} (${b(t.seconds[0],t.seconds[1])}).
      <label class="line"><input type="checkbox" checked=${d} onChange=${()=>h(!d)} /> also what is the same</label></p>
    <div class="scroll" tabindex="0" role="region" aria-label="Visits"><table class="compared">
      <thead><tr><th scope="col">Visit</th><th scope="col"><a href=${`#/threads/${encodeURIComponent(s)}`}>${s}, run ${r}</a></th>
        <th scope="col"><a href=${`#/threads/${encodeURIComponent(o)}`}>${o}, run ${l}</a></th></tr></thead>
      <tbody>${g.map(({row:e,at:a})=>n`<tr key=${a} class=${e.same?"":a===$?"first differs":"differs"}>
        <th scope="row">${e.same?"":"≠ "}${e.node} ${e.visit}${e.part&&e.part!=="text"?` (${e.part})`:""}</th>
        <td><pre>${e.a??"—"}</pre></td><td><pre>${e.b??"—"}</pre></td></tr>`)}</tbody></table></div>
    ${t.total>t.rows.length&&n`<p class="faint">${v(t.total-t.rows.length,"more visit")}</p>`}
  </main>`}
