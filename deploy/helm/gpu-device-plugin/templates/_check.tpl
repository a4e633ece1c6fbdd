{{/* What can't be rendered, each with the value's name, what was found and the cure. All findings at once. */}}

{{- define "gdp.check" -}}
{{- $findings := concat
  (include "gdp.check.placement" . | fromJsonArray)
  (include "gdp.check.config" . | fromJsonArray)
  (include "gdp.check.pods" . | fromJsonArray)
  (include "gdp.check.resources" . | fromJsonArray)
  (include "gdp.check.notOffered" . | fromJsonArray) -}}
{{- with $findings -}}
{{- fail (printf "\n%s" (join "\n" .)) -}}
{{- end -}}
{{- end -}}

{{- define "gdp.check.placement" -}}
{{- $found := list -}}
{{- if .Values.namespace -}}
{{- $found = append $found (printf "namespace: found %v; the release's namespace counts: use helm's --namespace (with --create-namespace), or namespaceOverride" .Values.namespace) -}}
{{- end -}}
{{- if and (eq (include "gdp.namespace" .) "default") (not .Values.allowDefaultNamespace) -}}
{{- $found = append $found "the namespace is default: install with --namespace (and --create-namespace), or set allowDefaultNamespace to true" -}}
{{- end -}}
{{- if regexMatch "nvidia.*k8s-device-plugin" .Values.image.repository -}}
{{- $found = append $found (printf "image.repository: found %s, which is NVIDIA's plugin; set it to where this plugin's image is, and remove image.tag" .Values.image.repository) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "gdp.check.config" -}}
{{- $found := list -}}
{{- $config := .Values.config -}}
{{- $map := $config.map | default dict -}}
{{- $names := keys $map | sortAlpha -}}
{{- if and $config.name $config.map -}}
{{- $found = append $found "config: found both name and map, expected one: name for a ConfigMap that exists, map for one that this chart makes" -}}
{{- else if and $config.name (not $config.default) -}}
{{- $found = append $found (printf "config.default: found nothing, expected the key of ConfigMap %s that is the plugin's file; the chart can't look into a ConfigMap that it doesn't make" $config.name) -}}
{{- else if and $config.default (not $config.name) (not (hasKey $map $config.default)) -}}
{{- $found = append $found (printf "config.default: found %s, expected a key of config.map: %s" $config.default (join ", " $names | default "there is none")) -}}
{{- else if and (gt (len $names) 1) (not (include "gdp.config.key" .)) (not (has "empty" $config.fallbackStrategies)) -}}
{{- $found = append $found (printf "config.default: found nothing, expected which key of config.map is the plugin's file: %s" (join ", " $names)) -}}
{{- else if not $config.name -}}
{{- $key := include "gdp.config.key" . -}}
{{- range $names -}}
{{- if ne . $key -}}
{{- $found = append $found (printf "config.map.%s: a node could only get it by its label nvidia.com/device-plugin.config, which is not offered yet; remove the key, or install the chart once for each node group, with a nodeSelector and one file" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $text := $config.map -}}
{{- $file := fromYaml $text -}}
{{- with $file.Error -}}
{{- $found = append $found (printf "config.map.%s: is no YAML mapping: %s" $name .) -}}
{{- end -}}
{{- $flags := kindIs "map" $file.flags | ternary $file.flags dict -}}
{{- range $path, $section := dict "flags" $file.flags "flags.plugin" $flags.plugin "sharing" $file.sharing -}}
{{- if not (or (empty $section) (kindIs "map" $section)) -}}
{{- $found = append $found (printf "config.map.%s: %s: found %s, expected a mapping" $name $path (toJson $section)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* What the API server would take, or refuse without a word about values, and no node can do with. */}}
{{- define "gdp.check.pods" -}}
{{- $found := list -}}
{{- $surge := ((.Values.updateStrategy | default dict).rollingUpdate | default dict).maxSurge | default 0 | toString -}}
{{- if not (has $surge (list "0" "0%")) -}}
{{- $found = append $found (printf "updateStrategy.rollingUpdate.maxSurge: found %s, expected 0: two plugins on one node take the resource from each other" $surge) -}}
{{- end -}}
{{- $identity := include "gdp.identity" . | fromYaml -}}
{{- range $label, $value := .Values.podLabels -}}
{{- if hasKey $identity $label -}}
{{- $found = append $found (printf "podLabels.%s: found %s, but the plugin's pods are known by this label: remove it; nameOverride or selectorLabelsOverride set it" $label $value) -}}
{{- end -}}
{{- end -}}
{{- $handedOn := dict -}}
{{- range include "gdp.plugin.values" . | fromJsonArray -}}
{{- $_ := set $handedOn (index . 0) (index . 2) -}}
{{- end -}}
{{- $_ := set $handedOn "CONFIG_FILE" "config" -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $handedOn .name -}}
{{- $found = append $found (printf "extraEnv: found %s, which is a value of its own that rights and mounts follow: set %s" .name (get $handedOn .name)) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Bytes of a quantity; 0 for one with a suffix that no memory limit has. */}}
{{- define "gdp.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := kindIs "string" . | ternary (toString .) (int64 . | toString) -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- if hasKey $units $unit -}}
{{- mulf (float64 $number) (get $units $unit) -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{- define "gdp.check.resources" -}}
{{- $found := list -}}
{{- $limits := (.Values.resources | default dict).limits | default dict -}}
{{- with $limits.memory -}}
{{- $bytes := include "gdp.bytes" . | float64 -}}
{{- if and (gt $bytes 0.0) (lt $bytes 83886080.0) -}}
{{- $found = append $found (printf "resources.limits.memory: found %v, expected at least 80Mi: the plugin is a Python process of about 50 MiB and would be killed at once; limits measured for NVIDIA's plugin don't fit, remove the key for our own (128Mi)" (kindIs "string" . | ternary . (int64 . | toString))) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}
