// Package trommel holds the tests of rules that are about the whole module.
package trommel
