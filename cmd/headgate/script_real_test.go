//go:build real

package main

import "testing"

// TestRealScripts runs testdata/real/*.txtar as TestScripts does: crowds and clusters, which
// take their time.
func TestRealScripts(t *testing.T) { runScripts(t, "testdata/real") }
