// Package tools pins the programs that build and check the project, in a module of its own so that none of their
// dependencies reach the product.
package tools
