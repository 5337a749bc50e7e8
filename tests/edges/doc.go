// Package edges tests headgate beside a proxy that asks about each request and forwards it itself:
// the wires at the socket, and with the tag edges the configurations of docs/edges.md in real nginx,
// Caddy, HAProxy, Envoy, Apache and Traefik, with a crowd and with attackers.
package edges
