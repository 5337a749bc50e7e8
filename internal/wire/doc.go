// Package wire writes what answers are made of: structured fields (RFC 9651), the choice by Accept,
// and the status by which a gRPC client is refused for lack of quota. It reads what requests send:
// their cookies.
//
// A gRPC client takes 429 for UNAVAILABLE, and calls again at once. It wants status 200, the code
// RESOURCE_EXHAUSTED in Grpc-Status, and in Grpc-Status-Details-Bin a google.rpc.Status with
// QuotaFailure and RetryInfo (google/rpc/status.proto, error_details.proto). They are encoded by
// hand: three messages of a few fields, which would bring gRPC and protobuf to whoever uses the
// library. A test reads them with both.
//
// All functions are pure, may be called at once, and cost some 200 bytes a violation.
package wire
