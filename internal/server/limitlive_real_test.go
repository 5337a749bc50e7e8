//go:build real

package server

const sharedLimits = `limits:
  - {name: api, algorithm: sliding_log, amount: 3, window: 1h, overrides: {eve: 2}}
  - {name: near, algorithm: sliding_log, amount: 3, window: 1h, scope: datacenter}
`
