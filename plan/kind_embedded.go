package plan

// Embedded is the control plane that Trommel builds and runs by itself.
const Embedded ClusterType = "embedded"

func init() {
	RegisterClusterKind(ClusterKind{Type: Embedded, Fields: controlPlaneFields, Can: []Capability{
		ConfigureControlPlane, ObserveAPIServers, KillAPIServers, RunControllers, OwnClock, SimulateNodes,
		InstallBuilds, CarryOutDisruptions, InstallDisruptions,
	}})
}
