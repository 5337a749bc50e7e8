package config

import (
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/pages"
)

// A Page configures the waiting page of a room where it differs from the default one. A relative
// path of a file starts at the folder of the configuration file.
type Page struct {
	// HTMLFile is a mustache template in the room's language. "" is the default page.
	HTMLFile string

	// Translations are templates in other languages, by tag.
	Translations map[string]string

	// Assets is a folder of files that headgate serves for the page. "" is none.
	Assets string

	// ContentSecurityPolicy is the policy of the page. "" is pages.CustomPolicy.
	ContentSecurityPolicy string
}

const maxPolicy = 4000 // characters; proxies accept headers of at least 4 KB. Chosen

func readPage(p *Page) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, pageFields(p))
		if p.HTMLFile == "" && len(p.Translations) > 0 && d.good(key+".html_file") {
			d.fault(key, n, wrong("name the page in the room's language with html_file",
				"has translations of no page"))
		}
	}
}

func pageFields(p *Page) []field {
	return []field{
		{name: "html_file", read: readFileName(&p.HTMLFile)},
		{name: "translations", read: readTranslations(&p.Translations)},
		{name: "assets", read: readFileName(&p.Assets)},
		one("content_security_policy", text(&p.ContentSecurityPolicy, cleanPolicy)),
	}
}

func readFileName(dst *string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		var name string
		if d.scalar(key, n, text(&name, cleanFileName)) {
			*dst = d.beside(name)
		}
	}
}

func readTranslations(dst *map[string]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		files := map[string]string{}
		var fields []field
		for _, tag := range pages.Languages() {
			fields = append(fields, field{name: tag, read: func(d *decoder, key string, n *yaml.Node) {
				var name string
				readFileName(&name)(d, key, n)
				files[tag] = name
			}})
		}
		d.mapping(key, n, fields)
		*dst = files
	}
}

func cleanFileName(s string) (string, *mistake) {
	if strings.TrimSpace(s) == "" {
		return "", wrong("write the path of a file, such as waiting.html", "is empty")
	}
	return s, nil
}

// cleanLanguage normalizes a language tag to the form in which it is listed.
func cleanLanguage(s string) (string, *mistake) {
	all := pages.Languages()
	i := slices.IndexFunc(all, func(tag string) bool { return strings.EqualFold(tag, s) })
	if i < 0 {
		return "", wrong("write one of "+strings.Join(all, ", "), "%s is not among the languages", quote(s))
	}
	return all[i], nil
}

func cleanPolicy(s string) (string, *mistake) {
	if len(s) > maxPolicy || strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || unicode.IsControl(r)
	}) {
		return "", wrong("write it in one line of plain characters, of at most 4,000",
			"is no Content-Security-Policy")
	}
	if err := pages.CheckPolicy(s); err != nil {
		return "", wrong("take it out: headgate writes frame-ancestors as cookie_samesite says, and sandboxes "+
			"previews", "%s", err.Error())
	}
	return s, nil
}
