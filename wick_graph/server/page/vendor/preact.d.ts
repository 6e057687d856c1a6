// The types of what preact.js gives to the page.
export interface Signal<T> { value: T; peek(): T }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(make: () => T): { readonly value: T };
export function effect(work: () => void | (() => void)): () => void;
export function batch<T>(work: () => T): T;
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(what: any, into: Element): void;
export function createElement(...values: any[]): any;
export const Fragment: any;
export function useEffect(work: () => void | (() => void), on?: unknown[]): void;
export function useLayoutEffect(work: () => void | (() => void), on?: unknown[]): void;
export function useRef<T>(value: T): { current: T };
export function useState<T>(value: T | (() => T)): [T, (next: T | ((now: T) => T)) => void];
export function useMemo<T>(make: () => T, on: unknown[]): T;
