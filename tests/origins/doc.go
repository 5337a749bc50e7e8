// Package origins holds real origins behind the real binary: Express 4 and 5, Flask and PHP.
//
// # The promise
//
// The path that a real router sees is among the readings that headgate decides on, and no spelling
// of a path reaches a closed room of the default configuration.
//
// # Concurrency
//
// Each origin is a process that ends with its test.
//
// # What it costs
//
// Some 20 seconds. It needs Node.js, Python and PHP: make setup-origins installs what is missing.
//
// # What it does not do
//
// It has no Tomcat, nginx or IIS: package paths holds their rules as oracles.
package origins
