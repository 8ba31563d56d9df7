package originals

import (
	"gopkg.in/yaml.v3"
)

const nodesVersion = "nodes.trommel.dev/v1alpha1"

// cycleSettings are the same here.
var cycleSettings = fields{
	"method": given("method"), "concurrency": given("concurrency"), "labelsToRemove": as("labelsToRemove"),
	"ignorePodsLabels": as("ignorePodsLabels"), "ignoreNamespaces": as("ignoreNamespaces"),
	"cyclingTimeout": duration("cyclingTimeout"),
}

var checkTLS = object("tlsConfig", fields{"rootCA": as("rootCA"), "crt": as("certificate"), "key": as("key")})

var healthCheck = fields{
	"endpoint": as("endpoint"), "waitPeriod": duration("waitPeriod"), "validStatusCodes": as("validStatusCodes"),
	"regexMatch": given("regexMatch"), "tls": checkTLS,
}

// cycleSpec are the fields that CycleNodeRequests and NodeGroups have in common.
func cycleSpec(more fields) fields {
	f := fields{
		"nodeGroupName": as("nodeGroupName"), "nodeGroupsList": as("nodeGroupsList"),
		"cycleSettings": settings, "cycleNodeSettings": settings,
		"validationOptions": object("validationOptions", fields{
			"skipMissingNamedNodes": given("skipMissingNamedNodes"),
		}),
		"healthChecks": list("healthChecks", healthCheck),
		"preTerminationChecks": list("preTerminationChecks", fields{
			"triggerEndpoint": as("endpoint"), "validStatusCodes": as("validStatusCodes"), "tls": checkTLS,
			"healthCheck": object("healthCheck", healthCheck),
		}),
		"skipInitialHealthChecks":  given("skipInitialHealthChecks"),
		"skipPreTerminationChecks": given("skipPreTerminationChecks"),
	}
	for name, convert := range more {
		f[name] = convert
	}
	return f
}

func settings(c *converter, at string, in *yaml.Node, out *mapping) {
	if entry(out.node, "cycleSettings") != nil {
		c.errorf(in, "%s: cycleSettings and cycleNodeSettings are two names of one field", at)
		return
	}
	object("cycleSettings", cycleSettings)(c, at, in, out)
	if s := entry(out.node, "cycleSettings"); value(s, "method") == "Wait" {
		(&mapping{s}).set("waitForAnnotation", text("cyclops.atlassian.com/do-not-disrupt"))
	}
}

func (c *converter) cycleNodeRequest(in *yaml.Node) *yaml.Node {
	return c.converted(in, nodesVersion, object("spec", cycleSpec(fields{
		"selector": as("selector"), "nodeNames": as("nodeNames"),
	})))
}

// nodeGroup has the fields of its requests in request. Its mode stays Report: a user who wants its nodes to be replaced
// says so.
func (c *converter) nodeGroup(in *yaml.Node) *yaml.Node {
	return c.converted(in, nodesVersion, func(c *converter, at string, in *yaml.Node, out *mapping) {
		spec, request := newMapping(), newMapping()
		cycleSpec(fields{
			"nodeSelector": as("selector"),
			"maxFailedCycleNodeRequests": func(c *converter, at string, in *yaml.Node, _ *mapping) {
				given("maxFailedRequests")(c, at, in, spec)
			},
			"priority": func(c *converter, at string, in *yaml.Node, out *mapping) {
				if in.Value != "0" {
					noted("each NodeGroup makes its own requests")(c, at, in, out)
				}
			},
		}).convert(c, at, in, request)
		spec.set("request", request.node)
		out.set("spec", spec.node)
		c.notef(in, "the NodeGroup reports which nodes are out of date. To have them replaced, set spec.mode: Cycle")
	})
}
