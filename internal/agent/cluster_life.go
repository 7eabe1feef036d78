package agent

import (
	"fmt"

	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/report"
)

// started tells of the start, and of a memory that could not be recalled.
func (c *cluster) started(lost error) {
	self := c.o.self
	c.events.Life(report.AgentStarted, "", fmt.Sprintf("agent %s started, version %s as %s", self.ID, self.Version, self.Mode))
	if lost != nil {
		c.events.Life(report.StateLost, "", "what was known of the checks before cannot be used: "+lost.Error())
	}
}

// reconfigured tells of another configuration that is in force.
func (c *cluster) reconfigured(s reload.Status) {
	c.events.Life(report.ConfigurationTaken, "", fmt.Sprintf("generation %d of the configuration is in force, from %s (SHA-256 %s…)", s.Generation, s.Path, s.Hash))
}

// faultLost tells of a latched fault that a change of the configuration lost.
func (c *cluster) faultLost(l health.Lost) {
	c.events.Life(report.LatchedFaultLost, l.Check, fmt.Sprintf("%s was latched as %s (%s) until a reboot, and its check was changed or taken away: %s", l.Check, l.Reason, l.Condition, l.Message))
}
