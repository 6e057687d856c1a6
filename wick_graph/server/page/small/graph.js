/*de2bfcd9*/
import{html as a,useEffect as C,useRef as E,useState as z}from"./vendor/preact.js";import{ask as L}from"./api.js";import{session as W}from"./session.js";const j=16,B=6,D=400,O=2e3,R=1e3,S=e=>({onClick:n=>(n.stopPropagation(),e()),onKeyDown:n=>{n.key!=="Enter"&&n.key!==" "||(n.preventDefault(),n.stopPropagation(),e())}}),T=e=>e.lines.some(n=>/\d errors?\b/.test(n)),M=e=>e.kind!=="start"&&e.kind!=="end";function Y({box:e,rect:n,over:r}){const[l,c,s,i]=n,g=Math.floor((s-8)/B),u=[e.name,...e.lines],h=c+i/2-(u.length-1)*j/2,f=[e.kind,e.id===r.node&&"here",e.id===r.live&&"live",T(e)&&"errors",e.id===r.only&&"only"].filter($=>$).join(" "),k=r.filter&&M(e)?{role:"button",tabindex:0,"aria-pressed":e.id===r.only,...S(()=>r.filter?.(e.id))}:{},m=r.dots.has(e.id);return a`<g class=${`box ${f}`} ...${k}>
      <rect x=${l} y=${c} width=${s} height=${i} rx="6" />
      ${u.map(($,p)=>a`<text x=${l+s/2} y=${h+p*j}
        class=${[p===0&&"name",e.id===r.node&&r.layer&&$.includes(r.layer)&&"layer"].filter(w=>w).join(" ")}>
        ${`${$.length>g?`${$.slice(0,g-1)}…`:$} `}</text>`)}
    </g>
    ${r.dot&&M(e)&&a`<circle class=${m?"dot set":"dot"} cx=${l} cy=${c+14} r="8" role="button" tabindex="0"
      aria-pressed=${m} aria-label=${`Breakpoint at ${e.name}`} ...${S(()=>r.dot?.(e.id))} />`}`}function x({edge:e,route:n}){const r=n.points.map(c=>c.join(",")).join(" "),l=n.label;return a`<g class=${e.conditional?"edge conditional":"edge"}>
    <polyline points=${r} marker-end="url(#arrow)" />
    ${l&&a`<text x=${l[0]+l[2]/2} y=${l[1]+l[3]/2}>${e.text}</text>`}
  </g>`}function A({made:e,over:n}){const r=Object.fromEntries(e.nodes.map(s=>[s.id,s.name])),[l,c]=z(200);return a`<ul class="outline">
    ${e.nodes.slice(0,l).map(s=>a`<li key=${s.id} class=${[s.id===n.node&&"here",T(s)&&"errors"].filter(i=>i).join(" ")}>
        ${n.filter&&M(s)?a`<button aria-pressed=${s.id===n.only} onClick=${()=>n.filter?.(s.id)}>${s.name}</button>
            ${n.dot&&a`<button class="faint" aria-pressed=${n.dots.has(s.id)} aria-label=${`Breakpoint at ${s.name}`}
              onClick=${()=>n.dot?.(s.id)}>${n.dots.has(s.id)?"●":"○"}</button>`}`:a`<b>${s.name}</b>`}
        <span class="faint">${s.id===n.node?"here · ":""}${s.lines.join(" · ")}</span>
        <ul>${e.edges.filter(i=>i.source===s.id).map(i=>a`<li>→ ${r[i.target]} <span class="faint">${i.text}</span></li>`)}</ul>
      </li>`)}
    ${e.nodes.length>l&&a`<li><button onClick=${()=>c(l+500)}>Show ${e.nodes.length-l} more</button></li>`}
  </ul>`}function H({made:e,over:n}){const{width:r,height:l,boxes:c,edges:s}=e.layout,[i,g]=z({x:-12,y:-4,zoom:1}),u=E(null),h=E(!1),f=E(null),[k,m]=z({width:400,height:400}),$=()=>{const t=u.current;if(!t)return;const o=Math.min(1,t.clientWidth/(r+24),t.clientHeight/(l+16));g({x:-(t.clientWidth/o-r)/2,y:-8,zoom:o})};C(()=>{const t=u.current,o=()=>(m({width:t.clientWidth,height:t.clientHeight}),h.current||$()),d=new ResizeObserver(o);d.observe(t),o();const y=b=>{!b.ctrlKey&&!b.metaKey||(b.preventDefault(),p(b.deltaY<0?1.15:1/1.15))};return t.addEventListener("wheel",y,{passive:!1}),()=>(d.disconnect(),t.removeEventListener("wheel",y))},[r,l]);const p=t=>g(o=>{h.current=!0;const d=Math.min(4,Math.max(.05,o.zoom*t)),y={x:(u.current?.clientWidth??0)/2,y:(u.current?.clientHeight??0)/2};return{x:o.x+y.x/o.zoom-y.x/d,y:o.y+y.y/o.zoom-y.y/d,zoom:d}}),w=t=>{const o=f.current;!o||!t.buttons||(h.current=!0,f.current={x:t.clientX,y:t.clientY},g(d=>({...d,x:d.x-(t.clientX-o.x)/d.zoom,y:d.y-(t.clientY-o.y)/d.zoom})))};return a`<figure>
    <div class="line tools"><button aria-label="Zoom in" onClick=${()=>p(1.3)}>+</button>
      <button aria-label="Zoom out" onClick=${()=>p(1/1.3)}>−</button><button onClick=${()=>(h.current=!1,$())}>Fit</button>
      <span class="faint">drag to pan, Ctrl and the wheel to zoom</span></div>
    <svg ref=${u} role="group" aria-label="Graph" class="graph"
      viewBox=${`${i.x} ${i.y} ${k.width/i.zoom} ${k.height/i.zoom}`}
      onPointerDown=${t=>f.current={x:t.clientX,y:t.clientY}} onPointerMove=${w}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      ${e.edges.map((t,o)=>a`<${x} edge=${t} route=${s[o]} />`)}
      ${e.nodes.map(t=>a`<${Y} key=${t.id} box=${t} rect=${c[t.id]} over=${n} />`)}
    </svg>
  </figure>`}export function Graph({thread:e,of:n=`/threads/${e}`,row:r,node:l,moments:c,does:s}){const[i,g]=z(null),[u,h]=z(""),f=c?.last.value;if(C(()=>{const t=new AbortController,o=setTimeout(()=>L(`${n}/graph`,void 0,t.signal).then(d=>(g(d),h("")),d=>{t.signal.aborted||h(d.message)}),i?R:0);return()=>(clearTimeout(o),t.abort())},[n,f]),u)return a`<p class="bad" role="alert">${u}</p>`;if(!i)return a`<p class="faint" aria-busy="true">Loading the graph …</p>`;const k=W.value?.breakpoints??[],m=new Map(k.map(t=>[t.spec.replace(/^break (node:)?/,""),t.number])),$=t=>i.nodes.some(o=>o.id==="before_agent")?t:`node:${t}`,p={node:l,layer:r?.kind==="hook"?r.name:"",only:c?.only.value,dots:new Set(m.keys()),live:i.run?.status==="running"?c?.rows.get(f)?.node??null:null,filter:c&&(t=>c.filter(c.only.peek()===t?"":t)),dot:s&&(t=>s(m.has(t)?`delete ${m.get(t)}`:`break ${$(t)}`))},w=i.nodes.length>D||i.edges.length>O;return a`${w?a`<p>The graph has ${i.nodes.length} nodes and ${i.edges.length} edges, too many for a drawing.</p>`:a`<${H} made=${i} over=${p} />`}
    <details open=${w}><summary>The graph as a list</summary><${A} made=${i} over=${p} /></details>`}
