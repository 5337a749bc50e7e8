// Package terraform drives the real program with OpenTofu and Cloudflare's provider, both built of
// their unmodified sources.
//
// # What is claimed
//
// Rooms, events, rules and settings that are applied are there, and work for visitors; the plan
// after it is empty, also after a change, an import and what others have changed was put right; what
// is wrong is told in the words of the management API.
//
// # Concurrency
//
// One test at a time: each owns its process and ends it.
//
// # Cost
//
// Half a minute; building the provider takes a quarter of an hour and 4 GB of memory. It needs the
// tag terraform.
//
// # What it does not do
//
// Run HashiCorp's Terraform: OpenTofu speaks the same protocol to providers.
package terraform
