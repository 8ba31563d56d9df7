// Package docs holds the tests of the documentation.
package docs
