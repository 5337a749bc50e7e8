// The packages are links to a folder elsewhere.
export default {turbopack: {root: '/'}};
