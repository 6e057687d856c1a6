/*7750e649*/
import{html as h,useEffect as M,useState as v}from"./vendor/preact.js";import{took as $}from"./values.js";const m=250,w=26,x=new Set(["exit","response","error","return"]);function _(l){const d=new Map,u=[],c=o=>o.at_us-o.duration_us;for(const o of l.filter(e=>e.duration_us!==null).sort((e,a)=>c(e)-c(a))){if(!x.has(o.phase)||o.kind==="tool"&&o.phase==="return")continue;const e={node:"node",model:"model",tool:"tool",agent:"sub-agent"}[o.kind];if(!e)continue;const a=c(o),s=d.get(e)??[];let i=s.findIndex(r=>r<=a);i<0&&(i=s.length),s[i]=o.at_us,d.set(e,s),u.push({row:o,begin:a,lane:i?`${e} ${i+1}`:e})}return u}export function Lanes({moments:l,row:d,seq:u,go:c}){const[o,e]=v(1),a=Math.max(1,u-m),s=Math.min(l.last.value,u+m);M(()=>l.only.peek()||l.need(a,s),[Math.floor(a/100),Math.floor(s/100)]),l.changed.value;const i=[];for(let n=a;n<=s;n++){const t=l.rows.get(n);t&&(!d||t.run===d.run)&&i.push(t)}const r=_(i);if(!r.length)return h`<p>Nothing around this moment has ended.</p>`;const f=Math.min(...r.map(n=>n.begin)),p=Math.max(...r.map(n=>n.row.at_us),f+1),g=["node","model","tool","sub-agent"].flatMap(n=>[...new Set(r.map(t=>t.lane))].filter(t=>t.startsWith(n)).sort()),b=n=>`${(n/(p-f)*100).toFixed(3)}%`;return h`<p class="line faint">From ${$(f)} to ${$(p)} of run ${d?.run}
      <button aria-label="Wider" onClick=${()=>e(Math.min(64,o*2))}>+</button>
      <button aria-label="Narrower" onClick=${()=>e(Math.max(1,o/2))}>−</button></p>
    <div class="lanes" tabindex="0" role="region" aria-label="Lanes">
      <div style=${{width:`${o*100}%`}}>
        ${g.map(n=>h`<div class="lane" key=${n}><span class="faint">${n}</span>
          <div style=${{height:`${w}px`}}>${r.filter(t=>t.lane===n).map(({row:t,begin:k})=>h`<button
            key=${t.seq} class=${`span k-${t.kind}${t.status==="ok"?"":" bad"}${Math.abs(t.seq-u)<1?" here":""}`}
            style=${{left:b(k-f),width:b(t.duration_us)}} onClick=${()=>c(t.seq)}
            title=${`${t.tool??t.node??t.name}, ${$(t.duration_us)}`}>${t.kind==="tool"?t.tool:t.name||t.node}</button>`)}</div>
        </div>`)}
      </div>
    </div>`}
