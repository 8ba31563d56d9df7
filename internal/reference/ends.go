package reference

// EndOf says in words whether an object is there in the end; nil: the run knows nothing of it.
func EndOf(o *Object) string {
	if o == nil {
		o = &Object{}
	}
	if o.End != nil {
		return "exists at the end"
	}
	return gone(o)
}
