/*e99bbbb1*/
import{html as n,useEffect as v,useState as p}from"./vendor/preact.js";import{ask as w,threadPath as m}from"./api.js";import{counted as y}from"./values.js";export function Compare({parts:[s,r,o,l]}){const[t,f]=p(null),[b,h]=p(""),[$,g]=p(!1);v(()=>{const e=new AbortController;f(null);const a={run:r,theirs:l,...o===s?{}:{other:o}};return w(`${m(s)}/compare`,a,e.signal).then(f,c=>e.signal.aborted||h(c.message)),()=>e.abort()},[s,r,o,l]);const i=n`<h1>Compare</h1>
    <form class="row-form" onSubmit=${e=>{e.preventDefault();const[a,c]=["a","b"].map(x=>e.target.elements[x].value.trim().split("/").map(encodeURIComponent));location.hash=`#/compare/${a[0]}/${a[1]||1}/${c[0]}/${c[1]||1}`}}>
      <label for="a">Thread and run</label><input id="a" required value=${s?`${s}/${r}`:""} placeholder="th_…/1" />
      <label for="b">with</label><input id="b" required value=${o?`${o}/${l}`:""} placeholder="th_…-fork1/2" /><button>Compare</button>
    </form>`;if(!s)return n`<main class="wide">${i}</main>`;if(b)return n`<main class="wide">${i}<p class="bad" role="alert">${b}</p></main>`;if(!t)return n`<main class="wide" aria-busy="true">${i}<p class="faint">Loading …</p></main>`;const d=t.rows.findIndex(e=>!e.same),k=t.rows.map((e,a)=>({row:e,at:a})).filter(e=>$||d<0||!e.row.same||Math.abs(e.at-d)<3),u=(e,a)=>`${a>=e?"+":"−"}${Math.abs(a-e).toLocaleString("en",{maximumFractionDigits:3})}`;return n`<main class="wide">${i}
    <p class=${t.first?"note bad":"note"}>${t.first?`First difference: ${t.first}`:"Both did the same."}</p>
    <p>Tokens ${t.tokens[0].toLocaleString("en")} and ${t.tokens[1].toLocaleString("en")} (${u(t.tokens[0],t.tokens[1])}),
      seconds ${t.seconds[0].toFixed(3)} and ${t.seconds[1].toFixed(3)} (${u(t.seconds[0],t.seconds[1])}).
      <label class="line"><input type="checkbox" checked=${$} onChange=${()=>g(!$)} /> also what is the same</label></p>
    <div class="scroll" tabindex="0" role="region" aria-label="Visits"><table class="compared">
      <thead><tr><th scope="col">Visit</th><th scope="col"><a href=${`#${m(s)}`}>${s}, run ${r}</a></th>
        <th scope="col"><a href=${`#${m(o)}`}>${o}, run ${l}</a></th></tr></thead>
      <tbody>${k.map(({row:e,at:a})=>n`<tr key=${a} class=${e.same?"":a===d?"first differs":"differs"}>
        <th scope="row">${e.same?"":"≠ "}${e.node} ${e.visit}${e.part&&e.part!=="text"?` (${e.part})`:""}</th>
        <td><pre>${e.a??"—"}</pre></td><td><pre>${e.b??"—"}</pre></td></tr>`)}</tbody></table></div>
    ${t.total>t.rows.length&&n`<p class="faint">${y(t.total-t.rows.length,"more visit")}</p>`}
  </main>`}
