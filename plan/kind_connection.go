package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The types of actions that disturb the connection between a controller and another cluster.
const (
	DisturbConnection ActionType = "disturbConnection"
	RestoreConnection ActionType = "restoreConnection"
)

// Disturbing has the fields of disturbConnection.
type Disturbing struct {
	Delay time.Duration `yaml:"delay" doc:"By how much data is late, in each direction; without it, none passes."`
}

var disturbConnection = ActionKind{
	Type: DisturbConnection, Target: TargetController,
	Summary: "Let nothing pass between the controller and another cluster, or let it pass late.",
	Doc: "lets nothing pass between the controller and another cluster, or lets it pass late by `delay`, " +
		"[see](clusters.md#connections-between-clusters)",
	Fields: []string{"cluster"},
	Own:    func() any { return &Disturbing{} },
	Check: func(c *ActionCheck) {
		checkConnection(c)
		at := c.at.Field("delay")
		if ownFields[Disturbing](c.Action).Delay == 0 && at.Given() && !at.Failed() {
			at.Errorf("delay is 0; leave it out to let nothing pass")
		}
	},
	Explain: func(a *Action) string {
		if d := ownFields[Disturbing](a).Delay; d > 0 {
			return fmt.Sprintf("let all data between %s and the cluster %s be late by %s, in each direction",
				controllerName(a.Target), a.Cluster, FormatDuration(d))
		}
		return fmt.Sprintf("let nothing pass between %s and the cluster %s", controllerName(a.Target), a.Cluster)
	},
	Complete: (*Action).completeConnection,
	Effects: func(a *Action) []Effect {
		return []Effect{&Disconnection{By: a.Target, Cluster: a.Cluster, Delay: ownFields[Disturbing](a).Delay}}
	},
}

var restoreConnection = ActionKind{
	Type: RestoreConnection, Target: TargetController,
	Summary: "Let everything pass again between the controller and another cluster.",
	Doc:     "lets everything pass again between the controller and another cluster",
	Fields:  []string{"cluster"},
	Check:   checkConnection,
	Explain: func(a *Action) string {
		return fmt.Sprintf("let everything pass again between %s and the cluster %s", controllerName(a.Target),
			a.Cluster)
	},
	Complete: (*Action).completeConnection,
	Effects:  func(a *Action) []Effect { return []Effect{&Connection{By: a.Target, Cluster: a.Cluster}} },
}

// checkConnection checks that the action's controller has access to the other cluster.
func checkConnection(c *ActionCheck) {
	under := c.controller()
	if under == nil {
		return
	}
	others := sortedKeys(under.Kubeconfigs)
	switch name := c.Action.Cluster; {
	case c.Suite.FirstCluster() == "":
		c.Errorf("actionType", "%s is about the connection between a controller and another cluster, and the suite "+
			"has one cluster", c.Action.Type)
	case len(others) == 0:
		c.Errorf("actionTarget", "the controller %q has no kubeconfigs of other clusters, so there is no connection "+
			"that %s could be about", under.Name, c.Action.Type)
	case name == "":
		c.Missing("cluster", "%s has no cluster: the other end of the connection (%s)", c.Action.Type,
			strings.Join(others, ", "))
	case name == under.Cluster:
		c.Errorf("cluster", "%s is about another cluster, and the controller %q runs in %s", c.Action.Type, under.Name,
			name)
	default:
		c.connected("cluster", name)
	}
}

// connected checks that the action's controller is connected to a cluster of the suite, which the field names.
func (c *ActionCheck) connected(field, cluster string) {
	under := c.controller()
	if under == nil || cluster == under.Cluster || !slices.Contains(c.Suite.ClusterNames(), cluster) {
		return
	}
	if _, ok := under.Kubeconfigs[cluster]; !ok {
		c.Errorf(field, "the controller %q has no kubeconfig of the cluster %s", under.Name, cluster)
	}
}

// completeConnection fills in the other end of the connection, if there is only one.
func (a *Action) completeConnection(s *Suite) {
	if c := s.controller(a.Target); c != nil && len(c.Kubeconfigs) == 1 {
		a.Cluster = sortedKeys(c.Kubeconfigs)[0]
	}
}
