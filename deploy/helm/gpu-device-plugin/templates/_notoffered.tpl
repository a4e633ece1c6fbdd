{{/* Keys of NVIDIA's chart that this one can't honour. A key with the value that it has in NVIDIA's values.yaml asks for nothing: many files are a copy of that. */}}

{{- define "gdp.nvidiaDefaults" -}}
gfd:
  enabled: false
  nameOverride: gpu-feature-discovery
  namespaceOverride: ""
  noTimestamp: null
  sleepInterval: null
  enableHostNetwork: false
  securityContext: {privileged: true}
nfd:
  enabled: false
  nameOverride: node-feature-discovery
  enableNodeFeatureApi: false
  master:
    serviceAccount: {name: node-feature-discovery, create: true}
    config: {extraLabelNs: [nvidia.com]}
  worker:
    tolerations:
      - {key: node-role.kubernetes.io/master, operator: Equal, value: "", effect: NoSchedule}
      - {key: nvidia.com/gpu, operator: Equal, value: present, effect: NoSchedule}
    config:
      sources:
        pci: {deviceClassWhitelist: ["02", "03"], deviceLabelFields: [vendor]}
{{- end -}}

{{- define "gdp.check.notOffered" -}}
{{- $found := list -}}
{{- $cures := dict
  "gfd" "GPU feature discovery is not part of this chart; remove the key and run NVIDIA's own beside it if you need its labels (docs/migration.md)"
  "nfd" "Node Feature Discovery is not part of this chart; remove the key and install it with its own chart, or label nodes by hand: kubectl label node NODE nvidia.com/gpu.present=true" -}}
{{- $defaults := include "gdp.nvidiaDefaults" . | fromYaml -}}
{{- range $part, $cure := $cures -}}
{{- range $key, $value := get $.Values $part | default dict -}}
{{- $same := eq (toJson $value) (get (get $defaults $part) $key | toJson) -}}
{{- if not (or $same (kindIs "invalid" $value)) -}}
{{- $found = append $found (printf "%s.%s: found %s; %s" $part $key (toJson $value) $cure) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $features := .Values.cdi.featureFlags | default list -}}
{{- $features = kindIs "slice" $features | ternary $features (toString $features | splitList ",") -}}
{{- range list "enable-coherent-annotations" "enable-explicit-driver-libraries" -}}
{{- if has . $features -}}
{{- $found = append $found (printf "cdi.featureFlags: found %s, which is not offered yet; remove it" .) -}}
{{- end -}}
{{- end -}}
{{- range list "tegra" "wsl" -}}
{{- if eq . (toString $.Values.deviceDiscoveryStrategy) -}}
{{- $found = append $found (printf "deviceDiscoveryStrategy: found %s, which is not offered; expected auto or nvml" .) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}
