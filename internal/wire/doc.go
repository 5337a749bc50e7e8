// Package wire writes the parts of answers: structured fields (RFC 9651), the choice by Accept, and
// the status with which a gRPC client is rejected when a limit is exhausted. It also reads the
// cookies of requests, and lists the headers that a client may not send: hop.go.
//
// A gRPC client treats 429 as UNAVAILABLE and calls again at once. It needs status 200, the code
// RESOURCE_EXHAUSTED in Grpc-Status, and in Grpc-Status-Details-Bin a google.rpc.Status with
// QuotaFailure and RetryInfo (google/rpc/status.proto, error_details.proto). The package encodes
// these three small messages by hand; otherwise every user of the library would depend on gRPC and
// protobuf. A test decodes them with both.
//
// All functions are pure, may be called concurrently, and cost some 200 bytes for each violation.
package wire
