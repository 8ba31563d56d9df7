module example.com/versions

go 1.15

require (
	k8s.io/api v0.19.16
	k8s.io/apimachinery v0.19.16
	k8s.io/client-go v0.19.16
	sigs.k8s.io/controller-runtime v0.7.2
)
