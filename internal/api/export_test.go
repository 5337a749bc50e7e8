package api

// Routes returns the method and path of each route, as openapi.json writes them.
func Routes() (all []string) {
	for _, e := range (&API{}).allRoutes() {
		all = append(all, e.method+" "+e.path)
	}
	return all
}
