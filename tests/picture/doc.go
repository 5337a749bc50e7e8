// Package picture plays a short rush on a real room in virtual time, and draws it: the moving picture
// of the README (make picture).
package picture
