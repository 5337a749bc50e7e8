package pages

// A Warning is what a visitor reads shortly before a visit ends, in one language.
type Warning struct {
	Lang  string `json:"lang"`
	Dir   string `json:"dir"`
	Ends  string `json:"ends"` // {t} stands for the time that is left
	Stay  string `json:"stay"` // on the button that prolongs it
	Ended string `json:"ended"`
}

// Warning gives the texts in the language for a header.
func (p *Page) Warning(acceptLanguage string) Warning {
	w := p.choose(acceptLanguage).words
	return Warning{w.tag, w.Dir, w.text["ends"], w.text["stay"], w.text["ended"]}
}
