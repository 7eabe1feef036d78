// Package self has the checks of the agent itself: what keeps it from doing its work as it was told to.
package self
