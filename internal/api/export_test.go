package api

// Routes are method and path of all there are, as openapi.json writes them.
func Routes() (all []string) {
	for _, e := range (&API{}).allRoutes() {
		all = append(all, e.method+" "+e.path)
	}
	return all
}
